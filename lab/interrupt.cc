#include "lab/interrupt.h"

#include <csignal>

namespace isentrope::lab {
namespace {

volatile std::sig_atomic_t noted = 0;

}  // namespace

void note_interrupts() {
  struct sigaction action = {};
  action.sa_handler = [](int) { noted = 1; };
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

bool interrupted() { return noted != 0; }

void throw_if_interrupted() {
  if (interrupted()) throw Interrupted();
}

}  // namespace isentrope::lab
