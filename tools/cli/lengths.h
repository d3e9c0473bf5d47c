#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "isentrope/scale_rule.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace isentrope::cli {

// Parses "64,512,1e6" and ranges: "40:20000:40" counts by 40, "64:4096:x2" by factors of 2. Throws
// Error naming the option unless lengths are whole, in [1, 1e18] and at most a million.
[[nodiscard]] std::vector<std::int64_t> parse_lengths(std::string_view text,
                                                      std::string_view option = "lengths");

// Parses --rule of a command that shows one head. Throws Error naming the command if heads differ.
[[nodiscard]] ScaleRule parse_shared_rule(const std::string& text, const std::string& command);

// Adds the option --lengths, whose text parse_lengths() takes.
CLI::Option* add_lengths(CLI::App& app, std::string& lengths);

// Adds the option --dim.
CLI::Option* add_dim(CLI::App& app, std::int64_t& dim,
                     const std::string& text = "head dimension d");

}  // namespace isentrope::cli
