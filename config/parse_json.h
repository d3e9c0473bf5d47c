// JSON of users: parsed with an error of ours, and quoted in errors without its length.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace isentrope {

// A tree of our own, which nlohmann-json's parser fills and whose scalars are its values. Its own
// tree allocates where it is destroyed, and ends the program where there is no memory.
struct Json {
  std::string name;              // in the object that holds it; empty elsewhere
  nlohmann::ordered_json value;  // of a list or an object an empty one
  std::vector<Json> items = {};  // of a list or an object, in order

  [[nodiscard]] bool is_object() const { return value.is_object(); }
  [[nodiscard]] bool is_array() const { return value.is_array(); }
  // The member of that name; null where there is none, or where this is no object.
  [[nodiscard]] const Json* find(std::string_view member) const;
  // The same, made as null and put last where there is none.
  Json& member(std::string_view wanted);
  // On one line; what is no ASCII is escaped where `ascii` says so.
  [[nodiscard]] std::string dump(bool ascii = false) const;
};

// Throws Error naming `function` where the text is not JSON or is nested more than 64 deep.
Json parse_json(std::string_view function, std::string_view text);

// For messages: 120 bytes at most, and "..." where there was more.
std::string shortened(const Json& json);

}  // namespace isentrope
