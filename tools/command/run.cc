#include "tools/command/run.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>

#include "isentrope/error.h"

namespace isentrope::command {
namespace {

// Opens closed standard descriptors. Otherwise the next opened file would get that number, and
// output would be written into it. The replacements fail on use, like the closed ones.
void hold_standard_descriptors() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(descriptor, F_GETFD) >= 0) continue;
    // open() returns the lowest free number, which is this one.
    (void)::open("/dev/null", descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY);
  }
}

// Some file systems report a failed write only when the file is closed.
void close_output() {
  if (std::fclose(stdout) != 0) {
    throw Error(fmt::format("cannot write standard output: {}", std::strerror(errno)));
  }
}

}  // namespace

void complain(std::string_view name, std::string_view text) {
  std::string line(text);
  std::ranges::replace(line, '\n', ' ');
  std::fputs(fmt::format("{}: {}\n", name, line).c_str(), stderr);
}

int guarded(const std::string& name, const std::function<int()>& body) {
  hold_standard_descriptors();
  try {
    const int status = body();
    close_output();
    return status;
  } catch (const std::bad_alloc&) {
    complain(name, "memory must suffice for the work; got too little");
  } catch (const std::exception& error) {
    complain(name, error.what());
  }
  return 2;
}

void parse(CLI::App& app, int argc, const char* const* argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app.help());
  } catch (const CLI::ParseError& error) {
    // Further lines of CLI11's message point to the help.
    const std::string_view text = error.what();
    throw Error(std::string(text.substr(0, text.find('\n'))));
  }
}

int run(CLI::App& app, int argc, char** argv) {
  return guarded(app.get_name(), [&] {
    parse(app, argc, argv);
    return 0;
  });
}

}  // namespace isentrope::command
