// The keys of a config.json, and which of them decided.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "isentrope/error.h"
#include "src/config/parse_json.h"

namespace isentrope {

// Reads keys and remembers which ones there were.
class Config {
 public:
  Config(const Json& json, std::string prefix, std::vector<std::string>& keys)
      : json_(&json), prefix_(std::move(prefix)), keys_(&keys) {}

  // The same keys, noted in another list.
  [[nodiscard]] Config reporting_to(std::vector<std::string>& keys) const {
    return {*json_, prefix_, keys};
  }

  [[nodiscard]] bool has(const std::string& key) const { return find(key) != nullptr; }

  [[nodiscard]] bool is_list(const std::string& key) const {
    const Json* const found = find(key);
    return found != nullptr && found->is_array();
  }

  [[nodiscard]] bool is_object(const std::string& key) const {
    const Json* const found = find(key);
    return found != nullptr && found->is_object();
  }

  // A number that decides: null counts as absent, anything but a number is an error.
  std::optional<double> number(const std::string& key) const {
    const Json* const found = find(key);
    if (found == nullptr) return {};
    if (!found->value.is_number()) {
      throw Error("[scale_of_config] " + prefix_ + key + " must be a number; got " +
                  shortened(*found));
    }
    note(key);
    return found->value.get<double>();
  }

  bool flag(const std::string& key) const {
    const Json* const found = find(key);
    if (found == nullptr) return false;
    const auto& value = found->value;
    const bool set =
        value.is_boolean() ? value.get<bool>() : value.is_number() && value.get<double>() != 0;
    if (set) note(key);
    return set;
  }

  std::string text(const std::string& key) const {
    const Json* const found = find(key);
    return found != nullptr && found->value.is_string() ? found->value.get<std::string>() : "";
  }

  // Whether the text or the list of texts under a key has that part.
  bool mentions(const std::string& key, std::string_view part) const {
    const Json* const found = find(key);
    return found != nullptr && found->dump().find(part) != std::string::npos;
  }

  // The object under a key; empty when it is absent.
  Config part(const std::string& key) const {
    static const Json kEmpty = {};
    const Json* const found = find(key);
    return {found != nullptr && found->is_object() ? *found : kEmpty, prefix_ + key + ".", *keys_};
  }

  void note(const std::string& key) const { keys_->push_back(prefix_ + key); }

 private:
  const Json* find(const std::string& key) const {
    const Json* const found = json_->find(key);
    return found == nullptr || found->value.is_null() ? nullptr : found;
  }

  const Json* json_;
  std::string prefix_;
  std::vector<std::string>* keys_;
};

}  // namespace isentrope
