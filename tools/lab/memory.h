#pragma once

#include "tools/lab/experiment_options.h"

namespace isentrope::lab {

// Returns a lower bound of a training's bytes: weights, gradients, AdamW's moments, and the larger
// of a step's activations and the longest evaluation. Real use is a few times larger.
[[nodiscard]] double least_memory(const ExperimentOptions& options, const ModelConfig& model);

// Throws Error if a training needs more memory than this machine has.
void require_memory(const ExperimentOptions& options, const ModelConfig& model);

}  // namespace isentrope::lab
