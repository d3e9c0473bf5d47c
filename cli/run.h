// The frame of a command: parse, run, and turn whatever goes wrong into one line and an exit
// status.
#pragma once

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <exception>
#include <string>

namespace isentrope::cli {

// Parses the arguments, which runs the callbacks of app and its subcommands.
inline int run(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
    return 0;
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help
    std::string line = error.what();
    if (const auto end = line.find('\n'); end != std::string::npos) line.resize(end);
    fmt::print(stderr, "{}: {}\n", app.get_name(), line);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", app.get_name(), error.what());
  }
  return 2;
}

}  // namespace isentrope::cli
