// The experiment of length extrapolation: models that differ in their scale rule alone are trained
// at one length and evaluated at others (docs/laboratory.md).
#pragma once

#include <nlohmann/json.hpp>

#include "lab/experiment_options.h"
#include "lab/progress.h"

namespace isentrope::lab {

// Runs what of the experiment is not done yet, one training after the other, and writes result.json
// and report.html; returns what result.json holds: where that cannot say what was, a name that is
// not UTF-8 or a number that is not finite, it says the nearest it can, or null. SIGINT and SIGTERM
// end the program until there is something to save, and are noted from then on. Throws Error on bad
// input before anything is written, Divergence, and Interrupted after saving.
nlohmann::json run_experiment(const ExperimentOptions& options, Progress& progress);

}  // namespace isentrope::lab
