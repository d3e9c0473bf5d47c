#include "tools/report/document.h"

#include <fmt/core.h>

#include <limits>

#include "isentrope/error.h"

namespace isentrope::report {

using nlohmann::json;

Value Value::operator[](const std::string& key) const {
  require(is_null() || json_.is_object(), "an object");
  static const json null;
  return {json_.contains(key) ? json_[key] : null, kind_,
          place_.empty() ? key : place_ + "." + key};
}

std::vector<std::pair<std::string, Value>> Value::members() const {
  std::vector<std::pair<std::string, Value>> members;
  const json object = this->object();
  for (const auto& [key, _] : object.items()) members.emplace_back(key, (*this)[key]);
  return members;
}

std::vector<Value> Value::elements() const {
  require(is_null() || json_.is_array(), "an array");
  std::vector<Value> elements;
  for (std::size_t i = 0; i < json_.size(); ++i)
    elements.emplace_back(json_[i], kind_, fmt::format("{}[{}]", place_, i));
  return elements;
}

std::string Value::text() const {
  require(json_.is_string(), "a string");
  return json_;
}

double Value::number() const {
  require(is_null() || json_.is_number(), "a number");
  return is_null() ? std::numeric_limits<double>::quiet_NaN() : json_.get<double>();
}

std::int64_t Value::integer() const {
  require(json_.is_number_integer(), "an integer");
  return json_;
}

std::int64_t Value::positive() const {
  const bool fits =
      json_.is_number_integer() && json_ > 0 && json_ <= std::numeric_limits<std::int64_t>::max();
  require(fits, "a positive integer");
  return json_;
}

json Value::object() const {
  require(is_null() || json_.is_object(), "an object");
  return is_null() ? json::object() : json_;
}

void Value::refuse(const char* required) const {
  const std::string got = json_.is_structured()
                              ? json_.type_name()
                              : json_.dump(-1, ' ', true, json::error_handler_t::replace);
  throw Error(fmt::format("[{}_report] {} must be {}; got {:.60}", kind_,
                          place_.empty() ? "a result" : place_, required, got));
}

void require_version(const json& document, const std::string& kind, int version) {
  if (document.at("version") == version) return;
  throw Error(fmt::format("[{}_report] version must be {}; got {}", kind, version,
                          document.at("version").dump()));
}

void refuse_document(const std::string& kind, const json::exception& error) {
  throw Error(
      fmt::format("[{0}_report] the document must be of kind {0}; got {1}", kind, error.what()));
}

}  // namespace isentrope::report
