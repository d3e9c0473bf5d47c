// Searches in pages.
#pragma once

#include <string>

#include "tests/support/words.h"

namespace isentrope::report {

inline int count(const std::string& text, const std::string& part) {
  int result = 0;
  for (auto at = text.find(part); at != text.npos; at = text.find(part, at + part.size())) ++result;
  return result;
}

// Returns the page without the plotting library.
inline std::string own_part(const std::string& html) {
  const auto begin = html.find("<script>\n/*!");
  if (begin == html.npos) return html;
  return html.substr(0, begin) + html.substr(html.find("</script>", begin));
}

}  // namespace isentrope::report
