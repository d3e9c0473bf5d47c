// Ctrl-C and kill: noticed between steps, so that a run can save what it has.
#pragma once

#include <exception>

namespace isentrope::lab {

class Interrupted : public std::exception {};

// From now on SIGINT and SIGTERM are noted; a second one ends the program at once.
void note_interrupts();

// As if a signal had come: the trainings beside one that failed save what they have.
void interrupt();

[[nodiscard]] bool interrupted();
void throw_if_interrupted();

}  // namespace isentrope::lab
