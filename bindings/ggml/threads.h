#pragma once

#include "isentrope/parallel.h"

namespace isentrope::ggml {

// Returns a ParallelFor on so many threads of OpenMP. ggml's CPU backend has its threads from the
// same runtime, where they wait awake between operations: a decode step takes half the time that it
// takes with a pool that sleeps.
[[nodiscard]] ParallelFor on_openmp(int threads);

}  // namespace isentrope::ggml
