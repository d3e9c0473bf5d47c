// The experiment of length extrapolation: models that differ in their scale rule alone are trained
// at one length and evaluated at others (docs/laboratory.md).
#pragma once

#include <nlohmann/json.hpp>

#include "tools/lab/experiment_options.h"
#include "tools/lab/progress.h"

namespace isentrope::lab {

// Runs what is missing, one training after the other, and writes result.json and report.html.
// Returns result.json: non-finite numbers are null, names not in UTF-8 approximated. SIGINT and
// SIGTERM end the program until there is something to save; from then on they are noted. Throws
// Error on bad input before anything is written, Divergence, and Interrupted after saving.
nlohmann::json run_experiment(const ExperimentOptions& options, Progress& progress);

}  // namespace isentrope::lab
