// The experiment of length extrapolation: models that differ in their scale rule alone are trained
// at one length and evaluated at others (docs/laboratory.md).
#pragma once

#include <nlohmann/json.hpp>

#include "tools/lab/experiment_options.h"
#include "tools/lab/progress.h"

namespace isentrope::lab {

// Runs the missing parts of the experiment, one training after the other, and writes result.json
// and report.html. Returns the content of result.json: non-finite numbers are null, and names that
// are not UTF-8 are approximated. Until there is something to save, SIGINT and SIGTERM end the
// program; from then on they are noted. Throws Error on bad input before anything is written,
// Divergence, and Interrupted after saving.
nlohmann::json run_experiment(const ExperimentOptions& options, Progress& progress);

}  // namespace isentrope::lab
