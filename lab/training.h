// Training: one model of the experiment, trained and measured, with what it takes to go on after an
// interruption.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "lab/checkpoint.h"
#include "lab/experiment.h"
#include "lab/material.h"

namespace isentrope::lab {

class Training {
 public:
  // All of them must outlive the training.
  Training(const ExperimentOptions& options, const RunFolder& folder, const Material& material,
           ModelRule rule, std::uint64_t seed);

  // Steps that are not on disk. Throws Error when what is there is of another configuration.
  [[nodiscard]] std::int64_t steps_left() const;

  // The model's record: the one on disk, or that of training on and measuring now. Throws
  // Divergence, and Interrupted after saving.
  [[nodiscard]] nlohmann::json run(Progress& progress) const;

 private:
  [[nodiscard]] std::string name() const;
  [[nodiscard]] nlohmann::json configuration() const;
  [[nodiscard]] nlohmann::json evaluation() const;
  [[nodiscard]] std::optional<nlohmann::json> saved_record() const;
  [[nodiscard]] std::optional<Checkpoint> saved_checkpoint() const;
  [[nodiscard]] TrainingHistory train(Trainer& trainer, TrainingHistory history,
                                      Progress& progress) const;

  const ExperimentOptions& options_;
  const RunFolder& folder_;
  const Material& material_;
  ModelRule rule_;
  std::uint64_t seed_;
};

// The model that the experiment's options ask for.
[[nodiscard]] ModelConfig model_of(const ExperimentOptions& options, const Tokenizer& tokenizer);

}  // namespace isentrope::lab
