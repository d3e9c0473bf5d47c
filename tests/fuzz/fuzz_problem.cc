// Fuzz target: problem lines. Text is a problem that round-trips, or an Error of one line.

#include <string_view>

#include "isentrope/error.h"
#include "tests/fuzz/byte_source.h"
#include "tools/check/problem.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using isentrope::fuzz::require;
  try {
    const auto problem =
        isentrope::check::parse_problem({reinterpret_cast<const char*>(data), size});
    const std::string text = text_of(problem);
    require(isentrope::check::parse_problem(text) == problem,
            "the line does not come back: " + text);
  } catch (const isentrope::Error& error) {
    require(*error.what() == '[', "an error names no function");
  }
  return 0;
}
