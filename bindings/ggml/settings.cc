#include "bindings/ggml/settings.h"

#include <cstdlib>

#include "isentrope/error.h"
#include "isentrope/target.h"

namespace isentrope::ggml {
namespace {

const char* value_of(const char* variable) {
  const char* value = std::getenv(variable);
  return value == nullptr || *value == '\0' ? nullptr : value;
}

ScaleRule read_rule(const char* text) {
  ScaleRule rule = ScaleRule::parse(text);
  // A cache has room for more keys than there are, so only the mask tells how many a row has.
  if (rule.reads(LengthSource::position) || rule.reads(LengthSource::total)) {
    throw Error(
        "[ISENTROPE_RULE] the rule must count the keys that a row sees (length=visible); got " +
        rule.text());
  }
  // Throws if the rule cannot multiply a model's scale.
  static_cast<void>(ScaleRule::constant(1) * rule);
  return rule;
}

}  // namespace

std::string Settings::text() const {
  return "isentrope " ISENTROPE_VERSION ": flash attention (-fa on) with " + active_target() +
         "; rule: " + (rule ? rule->text() : "the model's scale") +
         "; statistics: " + (log ? log->path() : "none");
}

Settings read_settings() {
  Settings settings;
  if (const char* text = value_of("ISENTROPE_RULE")) settings.rule = read_rule(text);
  if (const char* path = value_of("ISENTROPE_STATISTICS"))
    settings.log = std::make_unique<HeadLog>(path);
  return settings;
}

}  // namespace isentrope::ggml
