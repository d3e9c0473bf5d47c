// Commands that isentrope runs itself; argv[0] is the command's own name. Each returns the exit
// status: 0, 1 for a failed check, or 2 for invalid input, with one line on stderr.
#pragma once

namespace isentrope::cli {

int bench_command(int argc, char** argv);
int check_command(int argc, char** argv);
int report_command(int argc, char** argv);
int scale_command(int argc, char** argv);
int theory_command(int argc, char** argv);

}  // namespace isentrope::cli
