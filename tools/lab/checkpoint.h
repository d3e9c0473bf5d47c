// Checkpoint: a training run on disk, from which it continues with the same bits. Data and masks
// are functions of seed and step, so there is no generator state.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "tools/lab/trainer.h"

namespace isentrope::lab {

// Measurements that a run has taken of itself so far.
struct TrainingHistory {
  std::vector<double> loss;  // one for each step
  double seconds = 0;        // total time of the steps
};

// Saves a checkpoint. `configuration` is all that determines the weights, and a run continues only
// under the same.
void save_checkpoint(const std::filesystem::path& path, const nlohmann::json& configuration,
                     const Trainer& trainer, const TrainingHistory& history);

struct Checkpoint {
  std::int64_t steps_done = 0;
  TrainingHistory history;
  std::vector<Transformer::NamedTensor> state;
};

// Loads a checkpoint. Throws Error if it is damaged, or naming a difference of configuration.
[[nodiscard]] Checkpoint load_checkpoint(const std::filesystem::path& path,
                                         const nlohmann::json& configuration);

// Throws Error naming the member in which `saved`, the content of `path`, differs from `wanted`.
void require_same(const nlohmann::json& saved, const nlohmann::json& wanted,
                  const std::filesystem::path& path);

}  // namespace isentrope::lab
