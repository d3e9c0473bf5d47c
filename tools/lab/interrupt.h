// SIGINT and SIGTERM: noticed between steps, so that a run can save its state.
#pragma once

#include <exception>

namespace isentrope::lab {

class Interrupted : public std::exception {};

// Notes SIGINT and SIGTERM from now on; a second signal ends the program at once.
void note_interrupts();

[[nodiscard]] bool interrupted();
void throw_if_interrupted();

}  // namespace isentrope::lab
