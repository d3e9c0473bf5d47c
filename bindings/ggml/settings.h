// Settings: what the user asks of the backend by environment variables.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "bindings/ggml/head_log.h"
#include "isentrope/scale_rule.h"

namespace isentrope::ggml {

struct Settings {
  // ISENTROPE_RULE: multiplies the scale of a model's graph by its growth with n, the number of
  // keys that a row's mask shows.
  std::optional<ScaleRule> rule;
  // ISENTROPE_STATISTICS: the file to which every call appends its heads' statistics.
  std::unique_ptr<HeadLog> log;

  // Returns one line that says what is on.
  [[nodiscard]] std::string text() const;
};

// Reads the environment. Throws Error for a rule that is invalid or counts what a cache does not
// tell, and for a file that cannot be opened.
[[nodiscard]] Settings read_settings();

}  // namespace isentrope::ggml
