// isentrope extrapolate: exit code 0 when done, 1 when the training or the machine failed, 2 on bad
// input, 130 when interrupted.

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <exception>

#include "isentrope/error.h"
#include "lab/interrupt.h"
#include "lab/options.h"
#include "lab/result.h"
#include "lab/trainer.h"

namespace {

using namespace isentrope;
using namespace isentrope::lab;

int complain(int code, std::string_view text) {
  fmt::print(stderr, "isentrope extrapolate: {}\n", text);
  return code;
}

void run(const CommandLine& line) {
  const std::string folder = line.experiment.output.string();
  Progress progress(stderr, line.quiet ? Progress::Style::silent : Progress::style_of(stderr));
  const nlohmann::json result = run_experiment(line.experiment, progress);
  if (line.json) {
    fmt::print("{}\n", result.dump(1));
  } else {
    fmt::print("{0}\nresult: {1}/result.json\nreport: {1}/report.html\n", summary(result), folder);
  }
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine line;
  try {
    line = parse_command_line(argc, argv);
    if (!line.help.empty()) {
      fmt::print("{}", line.help);
      return 0;
    }
    note_interrupts();
    run(line);
    return 0;
  } catch (const Error& error) {
    return complain(2, error.what());
  } catch (const Interrupted&) {
    return complain(
        130, fmt::format("interrupted and saved; to go on: {} --resume", line.experiment.command));
  } catch (const c10::Error& error) {
    return complain(1, error.what_without_backtrace());
  } catch (const std::exception& error) {
    return complain(1, error.what());
  }
}
