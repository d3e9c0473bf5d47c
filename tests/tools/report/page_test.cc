#include "tools/report/page.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "isentrope/error.h"
#include "tests/support/html.h"
#include "tools/report/line_chart.h"

namespace isentrope::report {
namespace {

using nlohmann::json;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

LineChart two_points() {
  LineChart chart;
  chart.title = "title";
  chart.series = {{"a", {1, 2}, {3, 4}}};
  return chart;
}

TEST(Numbers, ReadAsPeopleWriteThem) {
  EXPECT_EQ(decimal(43.268, 2), "43.27");
  EXPECT_EQ(decimal(-1.5, 1), "−1.5");
  EXPECT_EQ(decimal(-0.001, 2), "0.00");
  EXPECT_EQ(decimal(kNaN, 2), "–");
  EXPECT_EQ(signed_decimal(7.42, 2), "+7.42");
  EXPECT_EQ(signed_decimal(0.001, 2), "0.00");
  EXPECT_EQ(compact(1024), "1024");
  EXPECT_EQ(compact(4205742), "4,205,742");
  EXPECT_EQ(compact(10000), "10,000");
  EXPECT_EQ(compact(0.001), "0.001");
  EXPECT_EQ(compact(-12345), "−12,345");
}

TEST(Text, EscapesWhateverItIsGiven) {
  const std::string hostile = "<b>&\"'</b>";
  for (const Text& text : {Text(hostile), Text().plain(hostile), Text().strong(hostile),
                           Text().code(hostile), Text().symbol(hostile), Text().small(hostile),
                           Text().link(hostile, "https://x/" + hostile)}) {
    EXPECT_FALSE(has(text.html(), "<b>")) << text.html();
    EXPECT_TRUE(has(text.html(), "&lt;b&gt;&amp;&quot;&#39;&lt;/b&gt;")) << text.html();
  }
}

TEST(Text, CodeKeepsEveryCharacterAndBreaksAtWords) {
  EXPECT_EQ(Text().code("a_b(c=1)").html(), "<code>a_<wbr>b<wbr>(c=1)</code>");
  EXPECT_EQ(Text().code("").html(), "<code></code>");
  EXPECT_EQ(Text().code("(_").html(), "<code>(_</code>");
}

TEST(Text, LinksLeadToTheWebOnly) {
  EXPECT_NO_THROW((void)Text().link("x", "#here"));
  EXPECT_THROW((void)Text().link("x", "javascript:alert(1)"), Error);
  EXPECT_THROW((void)Text().link("x", "data:text/html,x"), Error);
}

TEST(Page, WithoutPlotsCarriesNoLibrary) {
  const std::string html = Page("t").heading("h").prose("p").html();
  EXPECT_LT(html.size(), 20000U);
  EXPECT_FALSE(has(html, "<script"));
}

TEST(Page, TakesBracesForText) {
  EXPECT_TRUE(has(Page("{{body}}").prose("{{style}}").html(), "<p>{{style}}</p>"));
}

TEST(Page, NoStringEndsTheScriptItIsIn) {
  LineChart chart = two_points();
  chart.x_label = "</script><!--<script>";
  const std::string html = Page("t").plot(line_plot(chart)).html();
  EXPECT_EQ(count(html, "<script"), count(html, "</script>"));
  EXPECT_EQ(count(html, "<script"), 4);  // the specification, the library, two scripts
  EXPECT_FALSE(has(html, "<!--"));
}

TEST(LinePlot, ShowsEveryNumberInItsTable) {
  LineChart chart;
  chart.series = {{"a", {1, 2, 3}, {1.5, kNaN, 3.5}, {0.25, 0, 0}}, {"b", {2, 4}, {20, 40}}};
  const Plot plot = line_plot(chart);
  ASSERT_EQ(plot.numbers.groups.size(), 1U);
  EXPECT_EQ(plot.numbers.groups[0].rows.size(), 4U);
  const std::string html = Page("t").plot(plot).html();
  expect_words(html, {">1.50\u00a0±\u00a00.25<", ">3.50<", ">20.00<", ">40.00<", ">–<"});
  EXPECT_EQ(plot.spec["data"][0]["values"].size(), 4U);
}

TEST(LinePlot, RejectsWhatItCannotDraw) {
  LineChart chart = two_points();
  chart.series[0].y.pop_back();
  EXPECT_THROW((void)line_plot(chart), Error);
  chart = two_points();
  chart.series[0].spread = {1};
  EXPECT_THROW((void)line_plot(chart), Error);
  chart = two_points();
  chart.series[0].x[0] = 0;
  EXPECT_NO_THROW((void)line_plot(chart));
  chart.x_axis = Axis::log2;
  EXPECT_THROW((void)line_plot(chart), Error);
}

TEST(LinePlot, NoTwoSeriesLookAlike) {
  LineChart chart;
  for (int i = 0; i < 40; ++i) chart.series.push_back({"a", {1, 2}, {1, 2}});
  std::set<std::pair<std::string, std::vector<int>>> looks;
  for (const LegendEntry& entry : line_plot(chart).legend)
    looks.emplace(entry.colour, entry.dashes);
  EXPECT_EQ(looks.size(), 40U);
}

TEST(LinePlot, ALogarithmicBarStaysAboveZero) {
  LineChart chart = two_points();
  chart.y_axis = Axis::log10;
  chart.series[0].spread = {5, 1};
  const json points = line_plot(chart).spec["data"][0]["values"];
  EXPECT_EQ(points[0]["low"], 3);
  EXPECT_EQ(points[1]["low"], 3);
}

}  // namespace
}  // namespace isentrope::report
