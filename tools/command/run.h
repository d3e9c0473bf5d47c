// Frame of a command: parses, runs, and turns any error into one line on stderr and an exit status.
#pragma once

#include <functional>
#include <string>
#include <string_view>

// Declared here, because CLI11's header takes longer to compile than most programs that use this.
namespace CLI {
class App;
}

namespace isentrope::command {

// Prints "NAME: TEXT" on stderr, on one line whatever the text.
void complain(std::string_view name, std::string_view text);

// Returns the exit status of body(); 2 after a message if it throws or standard output cannot be
// written. A full disk or a closed descriptor must not pass for success. Closes standard output.
int guarded(const std::string& name, const std::function<int()>& body);

// Parses the arguments and runs the callbacks of app and its subcommands, or prints the requested
// help. Throws Error for invalid arguments, and the callbacks' errors.
void parse(CLI::App& app, int argc, const char* const* argv);

// Calls all of the above, for a command whose callbacks do its work.
int run(CLI::App& app, int argc, char** argv);

}  // namespace isentrope::command
