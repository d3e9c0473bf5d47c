// A value of a JSON document, and where it stands there: nlohmann-json's conversions, with errors
// that name the place.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace isentrope::report {

// A member that is absent is null, and so is a number that is not finite: JSON has no other word.
// null reads as nothing: no members, no elements, NaN. What is of another kind throws Error
// "[extrapolation_report] PLACE must be KIND; got VALUE".
class Value {
 public:
  // The document must outlive the value. Its place is as in "rules[1].entropy.64".
  explicit Value(const nlohmann::json& json, std::string place = {})
      : json_(json), place_(std::move(place)) {}

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
  std::string place_;
};

// Error "[KIND_report] version must be VERSION; got VALUE" unless a document of this kind has it.
void require_version(const nlohmann::json& document, const std::string& kind, int version);

[[noreturn]] void refuse_document(const std::string& kind, const nlohmann::json::exception& error);

// What `make` makes of a document of a program of ours. Where it is of another kind, an Error that
// says so.
template <typename Make>
auto read_as(const char* kind, const Make& make) {
  try {
    return make();
  } catch (const nlohmann::json::exception& error) {
    refuse_document(kind, error);
  }
}

}  // namespace isentrope::report
