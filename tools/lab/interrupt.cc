#include "tools/lab/interrupt.h"

#include <atomic>
#include <csignal>

namespace isentrope::lab {
namespace {

// Set by a signal handler.
std::atomic<bool> noted = false;
static_assert(std::atomic<bool>::is_always_lock_free);

}  // namespace

void note_interrupts() {
  struct sigaction action = {};
  action.sa_handler = [](int) { noted = true; };
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

bool interrupted() { return noted; }

void throw_if_interrupted() {
  if (interrupted()) throw Interrupted();
}

}  // namespace isentrope::lab
