// Memory: what an experiment cannot do with less of, asked before it begins.
#pragma once

#include "lab/experiment_options.h"

namespace isentrope::lab {

// Bytes that a training and its evaluation take at the very least: weights with their gradients and
// AdamW's moments, and the larger of what a step keeps for its backward pass and what the longest
// length takes. Real ones take more, up to a few times.
[[nodiscard]] double least_memory(const ExperimentOptions& options, const ModelConfig& model);

// Throws Error when a training needs more than this machine has.
void require_memory(const ExperimentOptions& options, const ModelConfig& model);

}  // namespace isentrope::lab
