#include "tools/report/text.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "isentrope/error.h"

namespace isentrope::report {
namespace {

constexpr const char* kMissing = "–";
constexpr const char* kMinus = "−";

bool rounds_to_zero(double value, int decimals) {
  return std::abs(value) < 0.5 * std::pow(10, -decimals);
}

}  // namespace

std::string escape(std::string_view text) {
  static const std::map<char, std::string_view> entities = {
      {'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&quot;"}, {'\'', "&#39;"}};
  std::string result;
  result.reserve(text.size());
  for (const char c : text) {
    const auto entity = entities.find(c);
    entity == entities.end() ? result += c : result += entity->second;
  }
  return result;
}

Text Text::markup(std::string html) {
  Text text;
  text.html_ = std::move(html);
  return text;
}

Text& Text::element(std::string_view name, std::string_view text) {
  html_.append("<").append(name).append(">").append(escape(text));
  html_.append("</").append(name).append(">");
  return *this;
}

Text& Text::plain(std::string_view text) {
  html_ += escape(text);
  return *this;
}

Text& Text::strong(std::string_view text) { return element("strong", text); }
Text& Text::symbol(std::string_view text) { return element("var", text); }
Text& Text::small(std::string_view text) { return element("small", text); }

Text& Text::code(std::string_view text) {
  html_ += "<code>";
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t underscore = std::min(text.find('_', begin), text.size() - 1);
    const std::size_t end = std::min(underscore + 1, text.find('(', begin + 1));
    html_ += escape(text.substr(begin, end - begin));
    if (end < text.size()) html_ += "<wbr>";
    begin = end;
  }
  html_ += "</code>";
  return *this;
}

Text& Text::link(std::string_view label, std::string_view url) {
  if (!url.starts_with("https://") && !url.starts_with("http://") && !url.starts_with('#')) {
    throw Error("[Text::link] a URL must be http, https or a fragment; got \"" + std::string(url) +
                "\"");
  }
  html_ += "<a href=\"" + escape(url) + "\">" + escape(label) + "</a>";
  return *this;
}

std::string decimal(double value, int decimals) {
  if (!std::isfinite(value)) return kMissing;
  const bool negative = value < 0 && !rounds_to_zero(value, decimals);
  return fmt::format("{}{:.{}f}", negative ? kMinus : "", std::abs(value), decimals);
}

std::string signed_decimal(double value, int decimals) {
  const bool positive = value > 0 && std::isfinite(value) && !rounds_to_zero(value, decimals);
  return fmt::format("{}{}", positive ? "+" : "", decimal(value, decimals));
}

std::string interval(double low, double high, int decimals) {
  if (!std::isfinite(low) || !std::isfinite(high)) return kMissing;
  return fmt::format("[{}, {}]", decimal(low, decimals), decimal(high, decimals));
}

std::string compact(double value) {
  if (!std::isfinite(value)) return kMissing;
  std::string digits = fmt::format("{}", std::abs(value));
  if (std::abs(value) < 1e15 && value == std::trunc(value)) {
    digits = fmt::format("{:.0f}", std::abs(value));
    for (std::size_t end = digits.size(), i = end; end > 4 && i > 3;) {
      i -= 3;
      digits.insert(i, 1, ',');
    }
  }
  return fmt::format("{}{}", value < 0 ? kMinus : "", digits);
}

std::string from_to(double from, double to) { return compact(from) + " to " + compact(to); }

}  // namespace isentrope::report
