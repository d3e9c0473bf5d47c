// Training program of isentrope extrapolate. Exit status: 0 when done, 1 if training failed, 2 for
// bad input or files that cannot be written, 130 when interrupted.

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include "tools/command/run.h"
#include "tools/lab/experiment.h"
#include "tools/lab/interrupt.h"
#include "tools/lab/options.h"
#include "tools/lab/result.h"
#include "tools/lab/trainer.h"

namespace {

using namespace isentrope;
using namespace isentrope::lab;

constexpr const char* kName = "isentrope extrapolate";

void run(const CommandLine& line) {
  Progress progress(stderr, line.quiet ? Progress::Style::silent : Progress::style_of(stderr));
  const nlohmann::json result = run_experiment(line.experiment, progress);
  if (line.json) {
    fmt::print("{}\n", result.dump(1));
  } else {
    fmt::print("{0}\nresult: {1}/result.json\nreport: {1}/report.html\n", summary(result),
               line.experiment.output.string());
  }
}

int run_reporting_errors(const CommandLine& line) {
  try {
    run(line);
    return 0;
  } catch (const Interrupted&) {
    command::complain(kName, fmt::format("interrupted and saved; to go on: {} --resume",
                                         line.experiment.command));
    return 130;
  } catch (const Divergence& error) {
    command::complain(kName, error.what());
  } catch (const c10::Error& error) {
    command::complain(kName, error.what_without_backtrace());
  }
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  return command::guarded(kName, [&] {
    const auto line = parse_command_line(argc, argv);
    return line ? run_reporting_errors(*line) : 0;
  });
}
