#include "report/extrapolation_charts.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "report/numbers.h"
#include "report/verdict_words.h"

namespace isentrope::report {
namespace {

constexpr int kLossPoints = 60;  // more tell no more, and make the table long

LineChart chart_by_length(const Result& result, const char* title, Text caption,
                          const char* y_label) {
  LineChart chart;
  chart.title = title;
  chart.caption = std::move(caption);
  chart.x_label = "length n, tokens";
  chart.y_label = y_label;
  chart.x_axis = Axis::log2;
  chart.x_ticks.assign(result.lengths.begin(), result.lengths.end());
  return chart;
}

// Only the lengths of the result: a reference may know others.
Series series_by_length(const Result& result, Text name, const ByLength& numbers) {
  Series series;
  series.name = std::move(name);
  for (const std::int64_t length : result.lengths) {
    if (const auto found = numbers.find(length); found != numbers.end()) {
      series.x.push_back(static_cast<double>(length));
      series.y.push_back(found->second);
    }
  }
  return series;
}

void add_spread(Series& series, const ByLength& spread) {
  if (spread.empty()) return;
  for (const double x : series.x) {
    const auto found = spread.find(static_cast<std::int64_t>(x));
    series.spread.push_back(found == spread.end() ? 0 : found->second);
  }
}

// One series per rule that has numbers; its colour is its place among the rules.
void add_rules(LineChart& chart, const Result& result, ByLength Measures::* measure) {
  for (std::size_t i = 0; i < result.rules.size(); ++i) {
    const RuleResult& rule = result.rules[i];
    if ((rule.mean.*measure).empty()) continue;
    Series series = series_by_length(result, Text().code(rule.name), rule.mean.*measure);
    series.reference = hides_far_keys(rule.kind);
    series.colour = static_cast<int>(i);
    add_spread(series, rule.spread.*measure);
    chart.series.push_back(std::move(series));
  }
}

LineChart accuracy_chart(const Result& result) {
  LineChart chart = chart_by_length(
      result, "Accuracy against length",
      "Tokens to predict, in text the model never saw, that it gets right.", "accuracy, %");
  add_rules(chart, result, &Measures::accuracy);
  return chart;
}

LineChart lead_chart(const Result& result) {
  LineChart chart =
      chart_by_length(result, "Lead over standard",
                      "Accuracy minus that of the model trained with the standard "
                      "scale, paired by seed; bars are 95 % intervals of Student's t.",
                      "points");
  chart.y_from_zero = true;
  for (std::size_t i = 0; i < result.rules.size(); ++i) {
    const RuleResult& rule = result.rules[i];
    Series series;
    series.name.code(rule.name);
    series.colour = static_cast<int>(i);
    series.reference = hides_far_keys(rule.kind);
    for (const analysis::Lead& lead : result.leads) {
      if (lead.metric != "accuracy" || lead.rule != rule.rule || lead.kind != rule.kind) continue;
      series.x.push_back(static_cast<double>(lead.length));
      series.y.push_back(lead.seeds.mean);
      const double half = (lead.seeds.high - lead.seeds.low) / 2;
      series.spread.push_back(std::isfinite(half) ? half : 0);
    }
    if (!series.x.empty()) chart.series.push_back(std::move(series));
  }
  return chart;
}

// The curve's accuracy at a gain between two of its own, linear in ln gain; nothing outside.
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

// Where each rule is on the curves, dashed. Rules that put all gains alike, as two names of one law
// do, share a line.
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

LineChart share_chart(const Result& result) {
  LineChart chart = chart_by_length(result, "Weight on far keys",
                                    "Share of a row's weight on keys farther than any seen in "
                                    "training: mean over layers, heads and rows.",
                                    "weight, %");
  chart.y_from_zero = true;
  chart.decimals = 1;
  add_rules(chart, result, &Measures::share_beyond);
  return chart;
}

LineChart distance_chart(const Result& result) {
  LineChart chart = chart_by_length(result, "Attended distance against length",
                                    Text()
                                        .symbol("Σ p |i − j|")
                                        .plain(", how far from its own position a row attends: "
                                               "mean over layers, heads and rows. All keys alike "
                                               "give n/3, or n/4 where rows see the past alone."),
                                    "distance, keys");
  chart.y_from_zero = true;
  chart.decimals = 1;
  add_rules(chart, result, &Measures::distance);
  return chart;
}

LineChart entropy_chart(const Result& result) {
  LineChart chart = chart_by_length(
      result, "Mean row entropy against length",
      Text("How widely a row spreads its attention: 0 for a single key, ")
          .symbol("ln n")
          .plain(" for all n keys of a row alike. Mean over layers, heads and rows, "
                 "out of the attention operator itself."),
      "entropy, nats");
  chart.y_from_zero = true;
  add_rules(chart, result, &Measures::entropy);
  if (chart.empty()) return chart;
  Series reference = series_by_length(result, Text().symbol("ln n").plain(", all keys alike"),
                                      result.uniform_entropy());
  reference.colour = kNeutral;
  reference.reference = true;
  chart.series.push_back(std::move(reference));
  return chart;
}

LineChart gradient_chart(const Result& result) {
  LineChart chart = chart_by_length(result, "Gradient mass against length",
                                    Text()
                                        .symbol("λ(1 − Σp²)")
                                        .plain(", half the L1 norm of the softmax's Jacobian: how "
                                               "much of a gradient passes through a row."),
                                    "gradient mass");
  chart.decimals = 4;
  chart.y_from_zero = true;
  add_rules(chart, result, &Measures::gradient_mass);
  return chart;
}

// The smallest of 1, 2, 5, 10, 20, 50, ... steps that leaves at most kLossPoints points.
std::size_t steps_per_point(std::size_t steps) {
  for (std::size_t decade = 1;; decade *= 10) {
    for (const std::size_t factor : {1, 2, 5}) {
      if (steps <= decade * factor * kLossPoints) return decade * factor;
    }
  }
}

Series loss_series(const RuleResult& rule, std::size_t step) {
  Series series;
  series.name.code(rule.name);
  for (std::size_t begin = 0; begin < rule.loss.size(); begin += step) {
    const std::size_t end = std::min(begin + step, rule.loss.size());
    double sum = 0;
    for (std::size_t i = begin; i < end; ++i) sum += rule.loss[i];
    series.x.push_back(static_cast<double>(end));
    series.y.push_back(sum / static_cast<double>(end - begin));
  }
  return series;
}

LineChart loss_chart(const Result& result) {
  std::size_t steps = 0;
  for (const RuleResult& rule : result.rules) steps = std::max(steps, rule.loss.size());
  const std::size_t step = steps_per_point(steps);
  LineChart chart;
  chart.title = "Training loss";
  chart.caption = "Cross-entropy of the tokens to predict.";
  if (step > 1)
    chart.caption.plain(
        fmt::format(" Each point is the mean of {} steps.", compact(static_cast<double>(step))));
  chart.x_label = "step";
  chart.y_label = "loss, nats a token";
  chart.markers = false;
  chart.decimals = 3;
  for (std::size_t i = 0; i < result.rules.size(); ++i) {
    if (result.rules[i].loss.empty()) continue;
    chart.series.push_back(loss_series(result.rules[i], step));
    chart.series.back().colour = static_cast<int>(i);
  }
  return chart;
}

std::vector<LineChart> not_empty(std::vector<LineChart> charts) {
  std::erase_if(charts, [](const LineChart& chart) { return chart.empty(); });
  return charts;
}

}  // namespace

LineChart gain_chart(const Result& result) {
  LineChart chart;
  chart.title = "Accuracy against a constant gain";
  chart.caption = Text(
      "The model trained with the standard scale, all rows of at least the training "
      "length scaled by one number, a curve for each length, on the validation part; where "
      "there is a position bias, it is scaled too. "
      "Dashed: where a rule puts the gain, length by length. A curve that peaks at 1 "
      "has nothing to give; one that peaks right of 1 wants a sharper softmax.");
  chart.x_label = "gain on the standard scale";
  chart.y_label = "accuracy, %";
  chart.x_axis = Axis::log2;
  for (const auto& [length, accuracy] : result.gains.curve) {
    chart.series.push_back({.name = "n = " + compact(static_cast<double>(length)),
                            .x = result.gains.gains,
                            .y = accuracy});
  }
  for (Series& mark : gain_marks(result.gains)) chart.series.push_back(std::move(mark));
  return chart;
}

std::vector<LineChart> accuracy_charts(const Result& result) {
  return not_empty({accuracy_chart(result), lead_chart(result)});
}

std::vector<LineChart> why_charts(const Result& result) {
  return not_empty({gain_chart(result), share_chart(result), distance_chart(result),
                    entropy_chart(result), gradient_chart(result)});
}

std::vector<LineChart> training_charts(const Result& result) {
  return not_empty({loss_chart(result)});
}

}  // namespace isentrope::report
