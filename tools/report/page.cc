#include "tools/report/page.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "tools/report/assets.h"

namespace isentrope::report {
namespace {

constexpr int kColours = 8;  // --series-1 ... of page.css
// Their number is prime to that of the colours, so that only the 41st series repeats the first.
const std::vector<int> kDashes[] = {{1, 0}, {9, 4}, {4, 4}, {14, 4, 3, 4}, {9, 3, 3, 3, 3, 3}};
const std::vector<int> kDots = {1, 5};  // for references only
constexpr std::size_t kLongTable = 24;  // rows; longer tables are printed in smaller type

// JSON for a script element, where "</script>" and "<!--" in strings must be escaped.
std::string script_json(const nlohmann::json& value) {
  using error_handler = nlohmann::json::error_handler_t;
  const std::string text = value.dump(-1, ' ', /*ensure_ascii=*/true, error_handler::replace);
  std::string result;
  for (const char c : text) {
    if (c == '<') {
      result += "\\u003c";
    } else {
      result += c;
    }
  }
  return result;
}

std::string html_of(const Table& table) {
  std::size_t rows = 0;
  for (const TableGroup& group : table.groups) rows += group.rows.size();
  const char* kind = table.columns.empty() ? "pairs" : rows > kLongTable ? "long" : "";
  std::string html =
      fmt::format("<div class=\"scroll\" tabindex=\"0\"><table class=\"{}\">\n", kind);
  if (!table.caption.html().empty()) html += "<caption>" + table.caption.html() + "</caption>\n";
  if (!table.columns.empty()) {
    html += "<thead><tr>";
    for (const Text& column : table.columns) html += "<th scope=\"col\">" + column.html() + "</th>";
    html += "</tr></thead>\n";
  }
  for (const TableGroup& group : table.groups) {
    html += "<tbody>\n";
    if (!group.heading.html().empty()) {
      html +=
          fmt::format("<tr class=\"group\"><th scope=\"rowgroup\" colspan=\"{}\">{}</th></tr>\n",
                      std::max<std::size_t>(table.columns.size(), 2), group.heading.html());
    }
    for (const TableRow& row : group.rows) {
      html += "<tr><th scope=\"row\">" + row.label.html() + "</th>";
      for (const Text& cell : row.cells) html += "<td>" + cell.html() + "</td>";
      html += "</tr>\n";
    }
    html += "</tbody>\n";
  }
  return html + "</table></div>\n";
}

std::string_view marker_path(Marker marker) {
  switch (marker) {
    case Marker::circle:
      return "M10,6a4,4 0 1,0 8,0a4,4 0 1,0 -8,0";
    case Marker::square:
      return "M10.5,2.5h7v7h-7z";
    case Marker::diamond:
      return "M14,1l3.6,5l-3.6,5l-3.6,-5z";
    case Marker::triangle:
      return "M14,1.5l4.5,8h-9z";
    case Marker::none:
      break;
  }
  return "";
}

// Legend symbol drawn like the line, so that series differ in colour and in dashes.
std::string key_of(const LegendEntry& entry) {
  std::string svg = fmt::format(
      "<svg class=\"key\" viewBox=\"0 0 28 12\" aria-hidden=\"true\"><path d=\"M1,6h26\" "
      "style=\"stroke:{}\" stroke-dasharray=\"{}\"/>",
      entry.colour, fmt::join(entry.dashes, " "));
  if (entry.marker != Marker::none)
    svg +=
        fmt::format("<path d=\"{}\" style=\"fill:{}\"/>", marker_path(entry.marker), entry.colour);
  return svg + "</svg>";
}

std::string html_of(const std::vector<LegendEntry>& legend) {
  std::string html = "<div class=\"legend\">\n";
  for (const LegendEntry& entry : legend) {
    html +=
        fmt::format("<button type=\"button\" aria-pressed=\"true\">{}<span>{}</span></button>\n",
                    key_of(entry), entry.name.html());
  }
  return html + "</div>\n";
}

}  // namespace

std::string fill(std::string_view text, const Words& words) {
  std::string result;
  for (;;) {
    const std::size_t begin = text.find("{{");
    if (begin == text.npos) return result.append(text);
    const std::size_t end = text.find("}}", begin);
    result.append(text.substr(0, begin));
    result.append(words.at(text.substr(begin + 2, end - begin - 2)));
    text.remove_prefix(end + 2);
  }
}

std::string part_of(std::string_view pages, std::string_view name, const Words& words) {
  const std::string mark = fmt::format("<!-- {} -->\n", name);
  const std::size_t begin = pages.find(mark) + mark.size();
  return fill(pages.substr(begin, pages.find("<!--", begin) - begin), words);
}

nlohmann::json chart_words(std::string_view name, const Words& words) {
  static const nlohmann::json charts = nlohmann::json::parse(assets::charts_json);
  nlohmann::json found = charts.at(std::string(name));
  for (nlohmann::json& member : found) {
    if (member.is_string()) member = fill(member.get<std::string>(), words);
  }
  return found;
}

std::string colour(int index) {
  return index == kNeutral ? "var(--muted)" : fmt::format("var(--series-{})", index % kColours + 1);
}

std::vector<int> dashes(int index, bool reference) {
  return reference || index == kNeutral ? kDots : kDashes[index % std::size(kDashes)];
}

Page::Page(std::string title, const Text& summary) : title_(std::move(title)) {
  if (!summary.html().empty()) summary_ = "<p class=\"summary\">" + summary.html() + "</p>\n";
}

Page& Page::heading(const Text& text) {
  body_ += "<h2>" + text.html() + "</h2>\n";
  return *this;
}

Page& Page::subheading(const Text& text) {
  body_ += "<h3 class=\"part\">" + text.html() + "</h3>\n";
  return *this;
}

Page& Page::prose(const Text& text) {
  body_ += "<p>" + text.html() + "</p>\n";
  return *this;
}

Page& Page::code(std::string_view text) {
  body_ += "<pre><code>" + escape(text) + "</code></pre>\n";
  return *this;
}

Page& Page::markup(std::string_view html) {
  body_ += html;
  return *this;
}

Page& Page::table(const Table& table) {
  body_ += html_of(table);
  return *this;
}

Page& Page::plot(const Plot& plot) {
  ++plots_;
  body_ +=
      fmt::format("<figure>\n<div class=\"drawing\">\n<figcaption><h3>{}</h3>", plot.title.html());
  if (!plot.caption.html().empty()) body_ += "<p>" + plot.caption.html() + "</p>";
  body_ += "</figcaption>\n";
  if (plot.legend.size() > 1) body_ += html_of(plot.legend);
  body_ += "<div class=\"plot\" tabindex=\"0\"></div>\n</div>\n";
  body_ +=
      "<noscript><p class=\"note\">The plot needs JavaScript; its numbers are "
      "below.</p></noscript>\n";
  body_ += "<script type=\"application/json\">" + script_json(plot.spec) + "</script>\n";
  body_ +=
      "<details><summary>Numbers</summary>\n" + html_of(plot.numbers) + "</details>\n</figure>\n";
  return *this;
}

Page& Page::footer(const Text& text) {
  footer_ += "<p>" + text.html() + "</p>\n";
  return *this;
}

std::string Page::html() const {
  std::string scripts;
  if (plots_ > 0) {
    for (const std::string_view script : {assets::contents_js, assets::vega_js, assets::page_js}) {
      scripts.append("<script>\n").append(script).append("</script>\n");
    }
  }
  return fill(assets::page_html, {{"title", escape(title_)},
                                  {"style", assets::page_css},
                                  {"summary", summary_},
                                  {"body", body_},
                                  {"footer", footer_},
                                  {"scripts", scripts}});
}

}  // namespace isentrope::report
