// isentrope report RESULT.json: the page that `isentrope extrapolate`, `isentrope inspect` or make
// bench writes, out of its JSON.

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/files.h"
#include "isentrope/error.h"
#include "report/bench.h"
#include "report/extrapolation.h"
#include "report/inspection.h"

namespace {

using isentrope::Error;

nlohmann::json read_json(const std::filesystem::path& path) {
  try {
    return nlohmann::json::parse(isentrope::cli::read_file(path));
  } catch (const nlohmann::json::parse_error& error) {
    throw Error(fmt::format("{} is not JSON (byte {})", path.string(), error.byte));
  }
}

// result.json, the oldest of the three, names no kind.
std::string page_of(const nlohmann::json& document) {
  const std::string kind =
      document.is_object() ? document.value("kind", "extrapolation") : "extrapolation";
  if (kind == "inspection") return isentrope::report::inspection_report(document);
  if (kind == "bench") return isentrope::report::bench_report(document);
  return isentrope::report::extrapolation_report(document);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "The report of a JSON file that isentrope extrapolate, isentrope inspect or make bench "
      "wrote: one HTML "
      "file, complete in itself.",
      "isentrope report");
  std::filesystem::path result, output;
  app.add_option("RESULT.json", result, "what one of them wrote")->required();
  app.add_option("-o,--output", output,
                 "where the page goes; report.html beside RESULT.json by default");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  if (output.empty()) output = result.parent_path() / "report.html";
  try {
    isentrope::cli::write_file(output, page_of(read_json(result)));
  } catch (const Error& error) {
    fmt::print(stderr, "isentrope report: {}\n", error.what());
    return 2;
  }
  fmt::print("{}\n", output.string());
  return 0;
}
