// Text: prose that is safe to put on a page, whatever its strings hold.
#pragma once

#include <concepts>
#include <string>
#include <string_view>

namespace isentrope::report {

// Escapes HTML's five special characters. Safe in elements and quoted attributes.
[[nodiscard]] std::string escape(std::string_view text);

// Prose with a little markup. Only these functions add markup; strings are escaped.
//
//   Text("Entropy is at most ").symbol("ln n").plain(", see ").link("Su 2021", url);
class Text {
 public:
  Text() = default;
  Text(const std::convertible_to<std::string_view> auto& plain) : html_(escape(plain)) {}

  // Trusted markup of a template, inserted as it is.
  [[nodiscard]] static Text markup(std::string html);

  Text& plain(std::string_view text);
  Text& strong(std::string_view text);
  Text& symbol(std::string_view text);  // formula or variable
  // A name in code, which may break after underscores and before brackets to fit narrow columns.
  Text& code(std::string_view text);
  Text& small(std::string_view text);  // on its own line, such as a spread below a mean
  // A link to follow; it loads nothing. Throws Error unless the URL is http, https or a #fragment.
  Text& link(std::string_view label, std::string_view url);

  [[nodiscard]] const std::string& html() const { return html_; }

 private:
  Text& element(std::string_view name, std::string_view text);

  std::string html_;
};

}  // namespace isentrope::report
