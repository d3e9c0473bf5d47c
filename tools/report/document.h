// Value of a JSON document with its place: nlohmann-json's conversions, with errors that name it.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace isentrope::report {

// An absent member reads as null, and so does a non-finite number, which JSON cannot express. null
// reads as no members, no elements, or NaN. A value of another type throws Error
// "[KIND_report] PLACE must be REQUIRED; got VALUE".
class Value {
 public:
  // Both must outlive the value. `kind` is that of the document, for messages; `place` is a path
  // such as "rules[1].entropy.64".
  Value(const nlohmann::json& json, const char* kind, std::string place = {})
      : json_(json), kind_(kind), place_(std::move(place)) {}

  [[nodiscard]] bool is_null() const { return json_.is_null(); }
  [[nodiscard]] Value operator[](const std::string& key) const;
  [[nodiscard]] std::vector<std::pair<std::string, Value>> members() const;
  [[nodiscard]] std::vector<Value> elements() const;

  [[nodiscard]] std::string text() const;
  [[nodiscard]] double number() const;
  [[nodiscard]] std::int64_t integer() const;
  [[nodiscard]] std::int64_t positive() const;
  [[nodiscard]] nlohmann::json object() const;

  [[noreturn]] void refuse(const char* required) const;

 private:
  void require(bool holds, const char* required) const {
    if (!holds) refuse(required);
  }

  const nlohmann::json& json_;
  const char* kind_;
  std::string place_;
};

// Throws Error "[KIND_report] version must be VERSION; got VALUE" for another version.
void require_version(const nlohmann::json& document, const std::string& kind, int version);

[[noreturn]] void refuse_document(const std::string& kind, const nlohmann::json::exception& error);

// Returns make(), for a document of this project's programs. Throws Error for a wrong structure.
template <typename Make>
auto read_as(const char* kind, const Make& make) {
  try {
    return make();
  } catch (const nlohmann::json::exception& error) {
    refuse_document(kind, error);
  }
}

}  // namespace isentrope::report
