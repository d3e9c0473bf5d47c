// JSON of users: parsed with an error of ours, and quoted in errors without its length.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "isentrope/error.h"

namespace isentrope {

inline nlohmann::ordered_json parse_json(std::string_view function, std::string_view text) {
  // Deep nesting would exhaust the stack of a recursive destructor before it meant anything.
  constexpr int kDeepest = 64;
  const auto shallow = [](int depth, nlohmann::ordered_json::parse_event_t,
                          nlohmann::ordered_json&) {
    if (depth > kDeepest) throw Error("nested too deeply");
    return true;
  };
  try {
    return nlohmann::ordered_json::parse(text, shallow);
  } catch (const std::exception& error) {
    throw Error("[" + std::string(function) + "] the text must be JSON; got " + error.what());
  }
}

inline std::string shortened(const nlohmann::ordered_json& json) {
  constexpr std::size_t kLongest = 120;
  std::string text = json.dump(-1, ' ', true, nlohmann::ordered_json::error_handler_t::replace);
  return text.size() <= kLongest ? text : text.substr(0, kLongest).append("...");
}

}  // namespace isentrope
