#include "tools/report/extrapolation_charts.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "tools/report/verdict_words.h"

namespace isentrope::report {
namespace {

constexpr int kLossPoints = 60;  // more points add nothing and lengthen the table

LineChart chart_by_length(const Result& result, std::string_view name) {
  LineChart chart = chart_named(name);
  chart.x_ticks.assign(result.lengths.begin(), result.lengths.end());
  return chart;
}

// Returns a series over the lengths of the result, with its spread, if any; a reference may have
// further lengths.
Series series_by_length(const Result& result, Text name, const ByLength& numbers,
                        const ByLength& spread = {}) {
  Series series{std::move(name), {}, {}};
  for (const std::int64_t length : result.lengths) {
    const auto found = numbers.find(length), width = spread.find(length);
    if (found == numbers.end()) continue;
    series.x.push_back(static_cast<double>(length));
    series.y.push_back(found->second);
    if (!spread.empty()) series.spread.push_back(width == spread.end() ? 0 : width->second);
  }
  return series;
}

// Adds a series of a rule, whose colour is its index in all charts; none without points.
void add_rule(LineChart& chart, const Result& result, std::size_t rule, Series series) {
  if (series.x.empty()) return;
  series.name = Text().code(result.rules[rule].name);
  series.reference = hides_far_keys(result.rules[rule].kind);
  series.colour = static_cast<int>(rule);
  chart.series.push_back(std::move(series));
}

// Returns the chart of that measure, with one series per rule that has numbers.
LineChart rules_chart(const Result& result, std::string_view measure) {
  LineChart chart = chart_by_length(result, measure);
  for (std::size_t i = 0; i < result.rules.size(); ++i) {
    const RuleResult& rule = result.rules[i];
    add_rule(chart, result, i,
             series_by_length(result, {}, rule.mean.at(measure), rule.spread.at(measure)));
  }
  return chart;
}

LineChart lead_chart(const Result& result) {
  LineChart chart = chart_by_length(result, "lead");
  for (std::size_t i = 0; i < result.rules.size(); ++i)
    add_rule(chart, result, i,
             lead_series(result.leads, result.rules[i].rule, result.rules[i].kind));
  return chart;
}

// Returns the accuracy at a gain, linear in ln gain; empty outside the measured gains.
std::optional<double> accuracy_at(const GainCurves& gains, std::int64_t length, double gain) {
  const auto found = gains.curve.find(length);
  if (found == gains.curve.end()) return {};
  for (std::size_t i = 1; i < gains.gains.size(); ++i) {
    const double low = gains.gains[i - 1], high = gains.gains[i];
    if (gain < low || gain > high) continue;
    const double share = std::log(gain / low) / std::log(high / low);
    return std::lerp(found->second[i - 1], found->second[i], share);
  }
  return {};
}

// Returns markers of rules' gains on curves. Equal gains, as of two names of one law, share one.
std::vector<Series> gain_marks(const GainCurves& gains) {
  std::vector<Series> marks;
  for (const auto& [rule, by_length] : gains.of_rules) {
    Series mark{.name = Text().code(rule), .x = {}, .y = {}, .reference = true};
    for (const auto& [length, gain] : by_length) {
      if (const auto accuracy = accuracy_at(gains, length, gain)) {
        mark.x.push_back(gain);
        mark.y.push_back(*accuracy);
      }
    }
    if (mark.x.empty()) continue;
    const auto alike = std::ranges::find(marks, mark.x, &Series::x);
    if (alike == marks.end()) {
      marks.push_back(std::move(mark));
    } else {
      alike->name.plain(", ").code(rule);
    }
  }
  return marks;
}

LineChart entropy_chart(const Result& result) {
  LineChart chart = rules_chart(result, "entropy");
  if (chart.empty()) return chart;
  Series reference = series_by_length(result, Text().symbol("ln n").plain(", uniform weights"),
                                      result.uniform_entropy());
  reference.colour = kNeutral;
  reference.reference = true;
  chart.series.push_back(std::move(reference));
  return chart;
}

// Returns the smallest of 1, 2, 5, 10, 20, 50, ... steps that leaves at most kLossPoints points.
std::size_t steps_per_point(std::size_t steps) {
  for (std::size_t decade = 1;; decade *= 10) {
    for (const std::size_t factor : {1, 2, 5}) {
      if (steps <= decade * factor * kLossPoints) return decade * factor;
    }
  }
}

LineChart loss_chart(const Result& result) {
  std::size_t steps = 0;
  for (const RuleResult& rule : result.rules) steps = std::max(steps, rule.loss.size());
  const std::size_t step = steps_per_point(steps);
  const std::string mean = step == 1 ? "one step" : compact(static_cast<double>(step)) + " steps";
  LineChart chart = chart_named("training loss", {{"steps", mean}});
  for (std::size_t i = 0; i < result.rules.size(); ++i) {
    const std::vector<double>& loss = result.rules[i].loss;
    Series series{Text().code(result.rules[i].name), {}, {}};
    series.colour = static_cast<int>(i);
    for (std::size_t begin = 0; begin < loss.size(); begin += step) {
      const std::size_t end = std::min(begin + step, loss.size());
      const double sum = std::accumulate(loss.begin() + begin, loss.begin() + end, 0.0);
      series.x.push_back(static_cast<double>(end));
      series.y.push_back(sum / static_cast<double>(end - begin));
    }
    if (!series.x.empty()) chart.series.push_back(std::move(series));
  }
  return chart;
}

std::vector<LineChart> not_empty(std::vector<LineChart> charts) {
  std::erase_if(charts, [](const LineChart& chart) { return chart.empty(); });
  return charts;
}

}  // namespace

Series lead_series(const std::vector<analysis::Lead>& leads, std::string_view rule,
                   std::string_view kind) {
  Series series;
  for (const analysis::Lead& lead : leads) {
    if (lead.metric != "accuracy" || lead.rule != rule || lead.kind != kind) continue;
    series.x.push_back(static_cast<double>(lead.length));
    series.y.push_back(lead.seeds.mean);
    const double half = (lead.seeds.high - lead.seeds.low) / 2;
    series.spread.push_back(std::isfinite(half) ? half : 0);
  }
  return series;
}

LineChart gain_chart(const Result& result) {
  LineChart chart = chart_named("gains");
  for (const auto& [length, accuracy] : result.gains.curve) {
    chart.series.push_back(
        {"n = " + compact(static_cast<double>(length)), result.gains.gains, accuracy});
  }
  for (Series& mark : gain_marks(result.gains)) chart.series.push_back(std::move(mark));
  return chart;
}

Charts charts_of(const Result& result) {
  const auto of = [&](const char* measure) { return rules_chart(result, measure); };
  return {not_empty({of("accuracy"), lead_chart(result)}),
          not_empty({gain_chart(result), of("share_beyond"), of("distance"), entropy_chart(result),
                     of("gradient_mass")}),
          not_empty({loss_chart(result)})};
}

}  // namespace isentrope::report
