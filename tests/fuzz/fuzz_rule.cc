// Fuzz target: rule text, rule JSON and model configurations. Whatever the bytes, the parsers
// either throw Error with one line, or give a rule that round-trips and whose lambda is finite.

#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>

#include "isentrope/config/scale_rule_json.h"
#include "isentrope/error.h"
#include "isentrope/scale_rule.h"
#include "tests/fuzz/byte_source.h"

namespace {

using isentrope::ScaleRule;
using isentrope::fuzz::require;

void check(const ScaleRule& rule) {
  const std::string text = rule.text();
  require(ScaleRule::parse(text) == rule, "the text form does not round-trip: " + text);
  const std::string json = isentrope::to_json(rule);
  require(isentrope::scale_rule_from_json(json) == rule,
          "the JSON form does not round-trip: " + json);
  const std::int64_t heads = rule.heads();
  for (const std::int64_t n :
       {std::int64_t{1}, std::int64_t{2}, std::int64_t{1000}, std::int64_t{1} << 62}) {
    for (const std::int64_t dim : {1, 2, 64, 65536}) {
      for (const std::int64_t head : {std::int64_t{0}, heads - 1}) {
        require(std::isfinite(rule.lambda({n, n - 1, n}, dim, head)),
                "lambda is not finite: " + text);
      }
    }
  }
  require(rule.lambda({0, 0, 0}, 64) == 0, "a row without keys has a scale: " + text);
}

template <class Parse>
void attempt(Parse parse) {
  try {
    check(parse());
  } catch (const isentrope::Error& error) {
    const std::string_view message = error.what();
    require(!message.empty() && message.find('\n') == std::string_view::npos,
            std::string("an error is not one line: ") + error.what());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  attempt([&] { return ScaleRule::parse(text); });
  attempt([&] { return isentrope::scale_rule_from_json(text); });
  attempt([&] { return isentrope::scale_of_config(text).rule; });
  return 0;
}
