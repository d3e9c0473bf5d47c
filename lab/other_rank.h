// What torchrun's ranks do beside the first: they train what falls to them, and send it what they
// have.
#pragma once

#include "lab/experiment_options.h"
#include "lab/ranks.h"

namespace isentrope::lab {

// Takes part in the experiment that the first rank runs. Writes into a temporary folder alone.
// Throws Error when that rank was started with other options, text or version, or is lost;
// Divergence, RankFailure and Interrupted.
void take_part(const ExperimentOptions& options, Ranks& ranks);

}  // namespace isentrope::lab
