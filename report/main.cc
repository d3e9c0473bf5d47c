// isentrope report RESULT.json: the page that `isentrope extrapolate`, `isentrope inspect` or make
// bench writes, out of its JSON.

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "command/files.h"
#include "command/run.h"
#include "isentrope/error.h"
#include "report/bench.h"
#include "report/calibration.h"
#include "report/extrapolation.h"
#include "report/inspection.h"
#include "report/study.h"

namespace {

using isentrope::Error;

nlohmann::json read_json(const std::filesystem::path& path) {
  try {
    return nlohmann::json::parse(isentrope::command::read_file(path));
  } catch (const nlohmann::json::parse_error& error) {
    throw Error(fmt::format("{} is not JSON (byte {})", path.string(), error.byte));
  }
}

// result.json, the oldest of the three, names no kind.
std::string page_of(const nlohmann::json& document) {
  if (!document.is_object() || !document.contains("kind"))
    return isentrope::report::extrapolation_report(document);
  const nlohmann::json& kind = document["kind"];
  if (kind == "inspection") return isentrope::report::inspection_report(document);
  if (kind == "calibration") return isentrope::report::calibration_report(document);
  if (kind == "evaluation") return isentrope::report::evaluation_report(document);
  if (kind == "study") return isentrope::report::study_report(document);
  if (kind == "bench") return isentrope::report::bench_report(document);
  using error_handler = nlohmann::json::error_handler_t;
  throw Error(
      fmt::format("[report] kind must be \"inspection\" or \"bench\", or absent; got {:.60}",
                  kind.dump(-1, ' ', true, error_handler::replace)));
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "The report of a JSON file that isentrope extrapolate, isentrope inspect or make bench "
      "wrote: one HTML "
      "file, complete in itself.",
      "isentrope report");
  std::filesystem::path result;
  std::optional<std::filesystem::path> output;
  app.add_option("RESULT.json", result, "what one of them wrote")->required();
  app.add_option("-o,--output", output,
                 "where the page goes; report.html beside RESULT.json by default");
  app.callback([&] {
    const std::filesystem::path to = output.value_or(result.parent_path() / "report.html");
    const nlohmann::json document = read_json(result);
    isentrope::command::write_file(to, page_of(document));
    if (document.is_object() && document.value("kind", nlohmann::json()) == "study") {
      for (const std::string& verdict : isentrope::report::study_verdicts(document))
        fmt::print("{}\n", verdict);
    }
    fmt::print("{}\n", to.string());
  });
  return isentrope::command::run(app, argc, argv);
}
