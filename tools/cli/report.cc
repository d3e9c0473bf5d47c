// isentrope report RESULT.json: writes the HTML page for a command's JSON.

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>

#include "src/files/writing.h"
#include "tools/cli/commands.h"
#include "tools/command/reading.h"
#include "tools/command/run.h"
#include "tools/report/pages.h"

namespace isentrope::cli {

int report_command(int argc, char** argv) {
  CLI::App app(
      "Writes the report of a JSON file by extrapolate, inspect, calibrate, evaluate, make demo, "
      "make study or\nmake bench, or of a log .jsonl of a training or of llama.cpp, as one "
      "self-contained HTML file.",
      "isentrope report");
  std::filesystem::path result;
  std::optional<std::filesystem::path> output;
  app.add_option("RESULT.json", result, "the JSON file")->required();
  app.add_option("-o,--output", output,
                 "file for the page; by default report.html in the folder of RESULT.json");
  app.callback([&] {
    const std::filesystem::path to = output.value_or(result.parent_path() / "report.html");
    const report::DocumentPage document =
        report::page_of_file(result.string(), command::read_file(result));
    command::write_file(to, document.page);
    for (const std::string& verdict : document.verdicts) std::puts(verdict.c_str());
    std::puts(to.c_str());
  });
  return command::run(app, argc, argv);
}

}  // namespace isentrope::cli
