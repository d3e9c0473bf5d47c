#include "src/config/parse_json.h"

#include <algorithm>
#include <utility>

#include "isentrope/error.h"

namespace isentrope {
namespace {

using nlohmann::ordered_json;

class Builder : public nlohmann::json_sax<ordered_json> {
 public:
  explicit Builder(Json& root) : root_(&root) {}

  [[nodiscard]] const std::string& complaint() const { return complaint_; }

  bool null() override { return scalar(nullptr); }
  bool boolean(bool value) override { return scalar(value); }
  bool number_integer(number_integer_t value) override { return scalar(value); }
  bool number_unsigned(number_unsigned_t value) override { return scalar(value); }
  bool number_float(number_float_t value, const string_t&) override { return scalar(value); }
  bool string(string_t& value) override { return scalar(value); }
  bool binary(binary_t&) override { return false; }  // only in binary formats
  bool start_object(std::size_t) override { return start(ordered_json::value_t::object); }
  bool start_array(std::size_t) override { return start(ordered_json::value_t::array); }
  bool end_object() override { return end(); }
  bool end_array() override { return end(); }
  bool key(string_t& name) override {
    name_ = name;
    return true;
  }
  bool parse_error(std::size_t, const std::string&,
                   const nlohmann::json::exception& error) override {
    complaint_ = error.what();
    return false;
  }

 private:
  // Returns the place of the next value. If a name occurs twice, the last value counts, at the
  // place of the first.
  Json& next() {
    if (open_.empty()) return *root_;
    Json& parent = *open_.back();
    return parent.is_object() ? parent.member(name_) : parent.items.emplace_back();
  }

  template <typename Value>
  bool scalar(const Value& value) {
    Json& json = next();
    json.items.clear();
    json.value = value;
    return true;
  }

  bool start(ordered_json::value_t type) {
    // Destroying a deeply nested tree would exhaust the stack, and no config needs one.
    constexpr std::size_t kDeepest = 64;
    if (open_.size() == kDeepest) {
      complaint_ = "nested too deeply";
      return false;
    }
    Json& json = next();
    json.items.clear();
    json.value = ordered_json(type);
    open_.push_back(&json);  // no sibling is added before it ends, so the pointer stays valid
    return true;
  }

  bool end() {
    open_.pop_back();
    return true;
  }

  Json* root_;
  std::vector<Json*> open_;
  std::string name_, complaint_;
};

std::string dump_of(const ordered_json& scalar, bool ascii) {
  return scalar.dump(-1, ' ', ascii, ordered_json::error_handler_t::replace);
}

}  // namespace

const Json* Json::find(std::string_view wanted) const {
  if (!is_object()) return nullptr;
  const auto found = std::find_if(items.begin(), items.end(),
                                  [&](const Json& item) { return item.name == wanted; });
  return found == items.end() ? nullptr : &*found;
}

Json& Json::member(std::string_view wanted) {
  if (const Json* const found = find(wanted)) return items[found - items.data()];
  return items.emplace_back(Json{.name = std::string(wanted), .value = nullptr});
}

std::string Json::dump(bool ascii) const {
  if (!is_object() && !is_array()) return dump_of(value, ascii);
  std::string text;
  for (const Json& item : items) {
    text.append(text.empty() ? "" : ",");
    if (is_object()) text.append(dump_of(item.name, ascii)).append(":");
    text.append(item.dump(ascii));
  }
  return is_object() ? "{" + text + "}" : "[" + text + "]";
}

Json parse_json(std::string_view function, std::string_view text) {
  Json json;
  Builder builder(json);
  if (!ordered_json::sax_parse(text, &builder)) {
    throw Error("[" + std::string(function) + "] the text must be JSON; got " +
                builder.complaint());
  }
  return json;
}

std::string shortened(const Json& json) {
  constexpr std::size_t kLongest = 120;
  const std::string text = json.dump(true);
  return text.size() <= kLongest ? text : text.substr(0, kLongest).append("...");
}

}  // namespace isentrope
