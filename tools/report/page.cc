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
  for (const char c : text) c == '<' ? result += "\\u003c" : result += c;
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

// Legend symbol drawn like the line, so that series differ in colour and in dashes.
std::string key_of(const LegendEntry& entry) {
  std::string svg = fmt::format(
      "<svg class=\"key\" viewBox=\"0 0 28 12\" aria-hidden=\"true\"><path d=\"M1,6h26\" "
      "style=\"stroke:{}\" stroke-dasharray=\"{}\"/>",
      entry.colour, fmt::join(entry.dashes, " "));
  if (!entry.marker.path.empty())
    svg += fmt::format("<path d=\"{}\" style=\"fill:{}\"/>", entry.marker.path, entry.colour);
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

}  // namespace

void Table::add(Text label, std::vector<Text> cells) {
  if (groups.empty()) groups.emplace_back();
  groups.back().rows.push_back({std::move(label), std::move(cells)});
}

Text prose_named(std::string_view name, const Words& words) {
  const std::string_view pages = assets::prose_html;
  const std::string mark = fmt::format("<!-- {} -->\n", name);
  const std::size_t begin = pages.find(mark) + mark.size();
  return Text::markup(fill(pages.substr(begin, pages.find("<!--", begin) - begin), words));
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

Page& Page::add(std::string_view html) {
  body_ += html;
  return *this;
}

Page& Page::heading(const Text& text) { return add("<h2>" + text.html() + "</h2>\n"); }

Page& Page::subheading(const Text& text) {
  return add("<h3 class=\"part\">" + text.html() + "</h3>\n");
}

Page& Page::prose(const Text& text) { return add("<p>" + text.html() + "</p>\n"); }

Page& Page::code(std::string_view text) {
  return add("<pre><code>" + escape(text) + "</code></pre>\n");
}

Page& Page::says(std::string_view name, const Words& words) {
  return add(prose_named(name, words).html());
}

Page& Page::table(const Table& table) { return add(html_of(table)); }

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
                                  {"style", std::string(assets::page_css)},
                                  {"summary", summary_},
                                  {"body", body_},
                                  {"footer", footer_},
                                  {"scripts", scripts}});
}

}  // namespace isentrope::report
