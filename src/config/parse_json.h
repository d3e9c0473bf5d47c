// JSON from users: parsed with an Error of the library, and shortened when quoted in messages.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace isentrope {

// JSON tree that nlohmann-json's parser fills; its scalars are that library's values. That
// library's own tree allocates in its destructor, which ends the program if memory is exhausted.
struct Json {
  std::string name;              // name in the enclosing object; otherwise empty
  nlohmann::ordered_json value;  // empty for a list or an object
  std::vector<Json> items = {};  // items of a list or an object, in order

  [[nodiscard]] bool is_object() const { return value.is_object(); }
  [[nodiscard]] bool is_array() const { return value.is_array(); }
  // Returns the member of that name; null if there is none, or if this is not an object.
  [[nodiscard]] const Json* find(std::string_view member) const;
  // Returns the member of that name; appends a null one if there is none.
  Json& member(std::string_view wanted);
  // Returns the text on one line; `ascii` escapes non-ASCII characters.
  [[nodiscard]] std::string dump(bool ascii = false) const;
};

// Parses a text. Throws Error naming `function` if it is not JSON or is nested more than 64 deep.
Json parse_json(std::string_view function, std::string_view text);

// Returns the text for a message: at most 120 bytes, and "..." if it was cut.
std::string shortened(const Json& json);

}  // namespace isentrope
