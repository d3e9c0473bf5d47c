// Checkpoint: a training run on disk, complete enough to go on with the same bits. Data and masks
// are functions of seed and step, so there is no generator state to keep.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "lab/trainer.h"

namespace isentrope::lab {

// What a run has measured of itself so far.
struct TrainingHistory {
  std::vector<double> loss;  // of each step
  double seconds = 0;        // in steps
};

// `configuration` is all that determines the weights: a run goes on only under the same.
void save_checkpoint(const std::filesystem::path& path, const nlohmann::json& configuration,
                     const Trainer& trainer, const TrainingHistory& history);

struct Checkpoint {
  std::int64_t steps_done = 0;
  TrainingHistory history;
  std::vector<Transformer::NamedTensor> state;
};

// Throws Error when the file is damaged or of another configuration, naming what differs.
[[nodiscard]] Checkpoint load_checkpoint(const std::filesystem::path& path,
                                         const nlohmann::json& configuration);

// Throws Error naming the member in which what `path` holds differs from what is wanted.
void require_same(const nlohmann::json& saved, const nlohmann::json& wanted,
                  const std::filesystem::path& path);

}  // namespace isentrope::lab
