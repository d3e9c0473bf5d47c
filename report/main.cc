// isentrope report RESULT.json: the page that `isentrope extrapolate` or `isentrope inspect` writes, out of
// its JSON.

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/files.h"
#include "isentrope/error.h"
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

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "The report of a JSON file that isentrope extrapolate or isentrope inspect wrote: one HTML file, "
      "complete in itself.",
      "isentrope report");
  std::filesystem::path result, output;
  app.add_option("RESULT.json", result, "what isentrope extrapolate or isentrope inspect wrote")->required();
  app.add_option("-o,--output", output,
                 "where the page goes; report.html beside RESULT.json by default");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  if (output.empty()) output = result.parent_path() / "report.html";
  try {
    const nlohmann::json document = read_json(result);
    const bool inspection = document.is_object() && document.value("kind", nlohmann::json()) == "inspection";
    isentrope::cli::write_file(output, inspection ? isentrope::report::inspection_report(document)
                                                  : isentrope::report::extrapolation_report(document));
  } catch (const Error& error) {
    fmt::print(stderr, "isentrope report: {}\n", error.what());
    return 2;
  }
  fmt::print("{}\n", output.string());
  return 0;
}
