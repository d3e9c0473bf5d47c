// Messages of errors, for tests of what is refused.
#pragma once

#include <string>

#include "isentrope/error.h"

namespace isentrope {

// Returns the message of the Error that call() throws; empty if it throws none.
template <typename Call>
std::string message_of(const Call& call) {
  try {
    static_cast<void>(call());
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace isentrope
