#include <string>
#include <string_view>

#include "isentrope/statistics.h"

namespace isentrope {
namespace {

// No text of the list has a character that JSON escapes.
std::string as_string(std::string_view text) { return '"' + std::string(text) + '"'; }

template <typename Names>
std::string names_of(unsigned bits, const Names& names) {
  std::string list;
  for (const auto& [bit, name] : names) {
    if (bits & bit) list += (list.empty() ? "" : ", ") + as_string(name);
  }
  return '[' + list + ']';
}

std::string needs_of(const Statistic& statistic) {
  const auto& [first, second] = statistic.needs;
  if (first.empty()) return "[]";
  return '[' + as_string(first) + (second.empty() ? "" : ", " + as_string(second)) + ']';
}

std::string as_object(const Statistic& statistic) {
  constexpr std::string_view kLogged[] = {"", "mean", "largest"};
  constexpr std::string_view kMerges[] = {"own", "mean", "squares", "largest_part", "largest"};
  std::string text;
  const auto add = [&](std::string_view key, const std::string& value) {
    text += (text.empty() ? "{" : ", ") + as_string(key) + ": " + value;
  };
  add("name", as_string(statistic.name));
  add("unit", as_string(statistic.unit));
  add("means", as_string(statistic.means));
  add("logged", as_string(kLogged[static_cast<int>(statistic.logged)]));
  add("merge", as_string(kMerges[static_cast<int>(statistic.merge)]));
  add("from_sums", statistic.of_row ? "true" : "false");
  add("sums", names_of(statistic.sums, kSumNames));
  add("differentiable", statistic.differentiable() ? "true" : "false");
  add("gradient", names_of(statistic.gradient, kTermNames));
  add("needs", needs_of(statistic));
  return text + '}';
}

}  // namespace

std::string statistics_json() {
  std::string all;
  for_each_statistic([&](const Statistic& statistic) {
    all += (all.empty() ? "" : ",\n") + as_object(statistic);
  });
  return '[' + all + ']';
}

}  // namespace isentrope
