// Text: a run of prose that is safe to put on a page, whatever the strings hold.
#pragma once

#include <string>
#include <string_view>

namespace isentrope::report {

// The five characters that mean something to HTML, as references. Fit for elements and for quoted
// attributes.
[[nodiscard]] std::string escape(std::string_view text);

// Prose with the little markup a report needs. Only what these functions add is markup: strings are
// taken as they are and escaped.
//
//   Text("Entropy is at most ").symbol("ln n").plain(", see ").link("Su 2021", url);
class Text {
 public:
  Text() = default;
  Text(std::string_view plain);    // NOLINT(google-explicit-constructor)
  Text(const std::string& plain);  // NOLINT(google-explicit-constructor)
  Text(const char* plain);         // NOLINT(google-explicit-constructor)

  // Markup of a template of ours, as it is.
  [[nodiscard]] static Text markup(std::string html);

  Text& plain(std::string_view text);
  Text& strong(std::string_view text);
  Text& symbol(std::string_view text);  // a formula or variable
  // Names out of code. In a table it may be broken after
  // an underscore and before a bracket, so that a long one fits a narrow column.
  Text& code(std::string_view text);
  Text& small(std::string_view text);  // on a line of its own: a spread below its mean
  // A link to follow, never one that is loaded. http, https and fragments (#...) only: Error
  // otherwise.
  Text& link(std::string_view label, std::string_view url);

  [[nodiscard]] const std::string& html() const { return html_; }

 private:
  Text& element(std::string_view name, std::string_view text);

  std::string html_;
};

}  // namespace isentrope::report
