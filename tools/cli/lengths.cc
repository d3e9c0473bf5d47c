#include "tools/cli/lengths.h"

#include <CLI/CLI.hpp>
#include <cmath>
#include <optional>
#include <string>

#include "isentrope/error.h"
#include "src/rules/number_text.h"
#include "tools/command/arguments.h"

namespace isentrope::cli {
namespace {

constexpr std::size_t kMost = 1000000;

[[noreturn]] void reject(std::string_view option, const std::string& required,
                         std::string_view got) {
  throw Error("[" + std::string(option) + "] " + required + "; got \"" +
              std::string(got.substr(0, 60)) + "\"");
}

std::int64_t parse_length(std::string_view option, std::string_view text) {
  const auto value = number_of(text);
  if (!value) reject(option, "each must be a number", text);
  if (!(*value >= 1 && *value <= 1e18) || *value != std::floor(*value)) {
    reject(option, "each must be whole, at least 1 and at most 1e+18", text);
  }
  return static_cast<std::int64_t>(*value);
}

// Parses FIRST:LAST:STEP or FIRST:LAST:xFACTOR.
void append_range(std::string_view option, std::string_view text,
                  std::vector<std::int64_t>& lengths) {
  const auto first_colon = text.find(':'), second_colon = text.find(':', first_colon + 1);
  if (second_colon == std::string_view::npos)
    reject(option, "a range must be FIRST:LAST:STEP or FIRST:LAST:xFACTOR", text);
  const std::int64_t first = parse_length(option, text.substr(0, first_colon));
  const std::int64_t last =
      parse_length(option, text.substr(first_colon + 1, second_colon - first_colon - 1));
  std::string_view step = text.substr(second_colon + 1);
  const bool geometric = step.starts_with('x');
  if (geometric) step.remove_prefix(1);
  const auto by = number_of(step);
  if (last < first) reject(option, "a range must not decrease", text);
  if (!by || !(geometric ? *by > 1 : *by >= 1) || !std::isfinite(*by)) {
    reject(option, "a range's STEP must be at least 1, its FACTOR above 1", text);
  }
  // Lengths below 2^53 are exact as doubles; rounding with a factor near 1 must still advance.
  double next = static_cast<double>(first);
  while (next <= static_cast<double>(last) && lengths.size() <= kMost) {
    const auto length = static_cast<std::int64_t>(std::llround(next));
    if (lengths.empty() || lengths.back() != length) lengths.push_back(length);
    next = geometric ? next * *by : next + *by;
  }
}

}  // namespace

std::vector<std::int64_t> parse_lengths(std::string_view text, std::string_view option) {
  std::vector<std::int64_t> lengths;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view part = text.substr(begin, end - begin);
    if (part.find(':') != std::string_view::npos) {
      append_range(option, part, lengths);
    } else {
      lengths.push_back(parse_length(option, part));
    }
    if (lengths.size() > kMost) reject(option, "there must be at most a million", text);
    begin = end + 1;
  }
  return lengths;
}

ScaleRule parse_shared_rule(const std::string& text, const std::string& command) {
  ScaleRule rule = ScaleRule::parse(text);
  if (rule.heads() > 1) {
    throw Error("[" + command + "] --rule must have one scale for all heads; got " + rule.text());
  }
  return rule;
}

CLI::Option* add_lengths(CLI::App& app, std::string& lengths) {
  return app.add_option("--lengths", lengths, "lengths n, as 64,512 or 40:20000:40 or 64:65536:x2")
      ->capture_default_str();
}

CLI::Option* add_dim(CLI::App& app, std::int64_t& dim, const std::string& text) {
  return app.add_option("--dim", dim, text)->check(command::whole_number())->capture_default_str();
}

}  // namespace isentrope::cli
