// Ctrl-C and kill: noticed between steps, so that a run can save what it has.
#pragma once

#include <exception>

namespace isentrope::lab {

class Interrupted : public std::exception {};

// From now on SIGINT and SIGTERM are noted; a second one ends the program at once.
void note_interrupts();

[[nodiscard]] bool interrupted();
void throw_if_interrupted();

}  // namespace isentrope::lab
