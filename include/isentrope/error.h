// Error: the only exception of the library.
#pragma once

#include <stdexcept>
#include <string>

namespace isentrope {

// A violated precondition. what() reads "[function] what is required; got what", in one line that
// can be shown to a user. When it is thrown, no output has been written.
class Error : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

}  // namespace isentrope
