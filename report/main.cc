// isentrope report RESULT.json: the page that a command writes, out of its JSON.

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "command/reading.h"
#include "command/run.h"
#include "command/writing.h"
#include "isentrope/error.h"
#include "report/bench.h"
#include "report/calibration.h"
#include "report/demo.h"
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

struct Page {
  std::string_view kind;
  std::string (*report)(const nlohmann::json&);
};

constexpr std::array kPages{
    Page{"inspection", isentrope::report::inspection_report},
    Page{"calibration", isentrope::report::calibration_report},
    Page{"evaluation", isentrope::report::evaluation_report},
    Page{"study", isentrope::report::study_report},
    Page{"bench", isentrope::report::bench_report},
    Page{"demo", isentrope::report::demo_report},
};

// result.json, the oldest of them, names no kind.
std::string page_of(const nlohmann::json& document) {
  if (!document.is_object() || !document.contains("kind"))
    return isentrope::report::extrapolation_report(document);
  const nlohmann::json& kind = document["kind"];
  std::string known;
  for (const Page& page : kPages) {
    if (kind == page.kind) return page.report(document);
    known += fmt::format("\"{}\", ", page.kind);
  }
  using error_handler = nlohmann::json::error_handler_t;
  throw Error(fmt::format("[report] kind must be {}or absent; got {:.60}", known,
                          kind.dump(-1, ' ', true, error_handler::replace)));
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Writes the report of a JSON file by extrapolate, inspect, calibrate, evaluate, make demo, "
      "make study or\nmake bench, as one self-contained HTML file.",
      "isentrope report");
  std::filesystem::path result;
  std::optional<std::filesystem::path> output;
  app.add_option("RESULT.json", result, "the JSON file")->required();
  app.add_option("-o,--output", output,
                 "file for the page; by default report.html in the folder of RESULT.json");
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
