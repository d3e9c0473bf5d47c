// isentrope report RESULT.json: the page that `isentrope extrapolate` writes, out of its
// result.json; or that of make bench, out of bench.json.

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "isentrope/error.h"
#include "report/bench.h"
#include "report/extrapolation.h"

namespace {

using isentrope::Error;

nlohmann::json read_json(const std::filesystem::path& path) {
  std::ifstream file(path);
  if (!file || std::filesystem::is_directory(path)) throw Error("cannot read " + path.string());
  try {
    return nlohmann::json::parse(file);
  } catch (const nlohmann::json::parse_error& error) {
    throw Error(fmt::format("{} is not JSON (byte {})", path.string(), error.byte));
  }
}

// Beside the target first, so that a failure leaves an older report as it was.
void write(const std::filesystem::path& path, const std::string& text) {
  std::filesystem::path part = path;
  part += ".part";
  std::ofstream file(part, std::ios::binary);
  file << text;
  file.close();
  std::error_code error;
  if (file) std::filesystem::rename(part, path, error);
  if (!file || error) {
    std::filesystem::remove(part, error);
    throw Error("cannot write " + path.string());
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "The report of a result.json that isentrope extrapolate wrote, or of make bench's "
      "bench.json: "
      "one HTML\nfile, complete in itself.",
      "isentrope report");
  std::filesystem::path result, output;
  app.add_option("RESULT.json", result, "what isentrope extrapolate or make bench wrote")
      ->required();
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
    const bool bench = document.is_object() && document.value("kind", nlohmann::json()) == "bench";
    write(output, bench ? isentrope::report::bench_report(document)
                        : isentrope::report::extrapolation_report(document));
  } catch (const Error& error) {
    fmt::print(stderr, "isentrope report: {}\n", error.what());
    return 2;
  }
  fmt::print("{}\n", output.string());
  return 0;
}
