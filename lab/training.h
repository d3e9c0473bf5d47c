// Training: one model of the experiment, trained and measured, with what it takes to go on after an
// interruption.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

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

  // Trains on from what is on disk, measures, and leaves the record, which it returns; where that
  // is there it does nothing else. Throws Divergence, and Interrupted after saving.
  [[nodiscard]] nlohmann::json run(Progress& progress) const;

  // What has been measured, when that is on disk.
  [[nodiscard]] std::optional<nlohmann::json> saved_record() const;

 private:
  [[nodiscard]] std::filesystem::path checkpoint_path() const;
  [[nodiscard]] std::filesystem::path record_path() const;
  [[nodiscard]] std::string name() const;
  [[nodiscard]] nlohmann::json configuration() const;
  [[nodiscard]] nlohmann::json evaluation() const;
  [[nodiscard]] std::optional<Checkpoint> saved_checkpoint() const;
  [[nodiscard]] TrainingHistory train(Trainer& trainer, TrainingHistory history,
                                      Progress& progress) const;

  const ExperimentOptions& options_;
  const RunFolder& folder_;
  const Material& material_;
  ModelRule rule_;
  std::uint64_t seed_;
};

// Those of an experiment, seed by seed, so that what is there when a run is stopped are pairs.
[[nodiscard]] std::vector<Training> trainings_of(const ExperimentOptions& options,
                                                 const RunFolder& folder, const Material& material);

// The model that the experiment's options ask for.
[[nodiscard]] ModelConfig model_of(const ExperimentOptions& options, const Tokenizer& tokenizer);

}  // namespace isentrope::lab
