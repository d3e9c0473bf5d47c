// The frame of a command: it parses, runs, and turns whatever goes wrong into one line on stderr
// and an exit status.
#pragma once

#include <functional>
#include <string>
#include <string_view>

// Its header takes longer to compile than most programs that hand their arguments on.
namespace CLI {
class App;
}

namespace isentrope::command {

// "NAME: TEXT" on stderr, on one line whatever the text.
void complain(std::string_view name, std::string_view text);

// The exit status of body(); 2 after a complaint when it throws, or when standard output cannot
// take what it printed: a full disk or a closed descriptor must not pass for success. Closes
// standard output.
int guarded(const std::string& name, const std::function<int()>& body);

// Parses the arguments, which runs the callbacks of app and its subcommands, or prints the help
// that they ask for. Throws Error when they do not parse, and what the callbacks throw.
void parse(CLI::App& app, int argc, const char* const* argv);

// All of the above, for a command whose callbacks are its work.
int run(CLI::App& app, int argc, char** argv);

}  // namespace isentrope::command
