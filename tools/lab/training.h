// Training: trains and measures one model of the experiment, and resumes after an interruption.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tools/lab/checkpoint.h"
#include "tools/lab/experiment.h"
#include "tools/lab/material.h"

namespace isentrope::lab {

class Training {
 public:
  // All references must outlive the training.
  Training(const ExperimentOptions& options, const RunFolder& folder, const Material& material,
           ModelRule rule, std::uint64_t seed);

  // Returns the steps not yet on disk. Throws Error if the saved configuration differs.
  [[nodiscard]] std::int64_t steps_left() const;

  // Continues from the state on disk, measures, writes the record and returns it; returns an
  // existing record at once. Throws Divergence, and Interrupted after saving.
  [[nodiscard]] nlohmann::json run(Progress& progress) const;

  // Returns the record if it is on disk.
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

// Returns the trainings, seed by seed, so that a stopped run leaves complete pairs.
[[nodiscard]] std::vector<Training> trainings_of(const ExperimentOptions& options,
                                                 const RunFolder& folder, const Material& material);

// Returns the model that the experiment's options describe.
[[nodiscard]] ModelConfig model_of(const ExperimentOptions& options, const Tokenizer& tokenizer);

}  // namespace isentrope::lab
