// Error: the one exception of the library.
#pragma once

#include <stdexcept>
#include <string>

namespace isentrope {

// A violated precondition. what() reads "[function] what is required; got what", one line, fit to
// be shown to a user. Nothing was written to any output when it is thrown.
class Error : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

}  // namespace isentrope
