// The program that isentrope extrapolate becomes: exit code 0 when done, 1 when training failed, 2
// on bad input and files that cannot be written, 130 when interrupted.

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include "command/run.h"
#include "isentrope/error.h"
#include "lab/experiment.h"
#include "lab/interrupt.h"
#include "lab/options.h"
#include "lab/other_rank.h"
#include "lab/ranks.h"
#include "lab/result.h"
#include "lab/trainer.h"

namespace {

using namespace isentrope;
using namespace isentrope::lab;

constexpr const char* kName = "isentrope extrapolate";

void run(const CommandLine& line, Ranks* ranks) {
  if (ranks != nullptr && !ranks->is_first()) return take_part(line.experiment, *ranks);
  const std::string folder = line.experiment.output.string();
  Progress progress(stderr, line.quiet ? Progress::Style::silent : Progress::style_of(stderr));
  const nlohmann::json result = run_experiment(line.experiment, ranks, progress);
  if (line.json) {
    fmt::print("{}\n", result.dump(1));
  } else {
    fmt::print("{0}\nresult: {1}/result.json\nreport: {1}/report.html\n", summary(result), folder);
  }
}

int run_or_say(const CommandLine& line, Ranks* ranks) {
  const auto failed = [&](const std::exception& error, const char* text, int code) {
    if (ranks != nullptr) ranks->fail(error);
    command::complain(kName, text);
    if (ranks != nullptr) ranks->wait_until_noted();
    return code;
  };
  try {
    run(line, ranks);
    return 0;
  } catch (const Interrupted&) {
    if (ranks == nullptr || ranks->is_first()) {
      command::complain(kName, fmt::format("interrupted and saved; to go on{}: {} --resume",
                                           ranks == nullptr ? "" : ", on any number of ranks",
                                           line.experiment.command));
    }
    return 130;
  } catch (const RankFailure& error) {
    command::complain(kName, error.what());
    ranks->note_failure();
    return 1;
  } catch (const Divergence& error) {
    return failed(error, error.what(), 1);
  } catch (const c10::Error& error) {
    return failed(error, error.what_without_backtrace(), 1);
  } catch (const std::exception& error) {
    if (ranks == nullptr) throw;
    return failed(error, error.what(), 2);
  }
}

int run_alone_or_as_rank(CommandLine line) {
  const std::unique_ptr<Ranks> ranks = Ranks::of_environment();
  if (ranks != nullptr && line.experiment.jobs > 1) {
    throw Error(fmt::format("[ranks] each rank trains one model at a time; got --jobs {}",
                            line.experiment.jobs));
  }
  // What an earlier attempt of torchrun left is this run's own.
  if (Ranks::attempt() > 0) line.experiment.existing = RunFolder::Existing::resume;
  return run_or_say(line, ranks.get());
}

}  // namespace

int main(int argc, char** argv) {
  return command::guarded(kName, [&] {
    const auto line = parse_command_line(argc, argv);
    return line ? run_alone_or_as_rank(*line) : 0;
  });
}
