#include "tools/report/law_charts.h"

#include <fmt/core.h>

#include <cmath>
#include <functional>
#include <limits>

#include "isentrope/theory/dimension.h"
#include "isentrope/theory/entropy.h"
#include "isentrope/theory/gradient.h"
#include "isentrope/theory/row_expectation.h"

namespace isentrope::report {
namespace {

constexpr double kNoValue = std::numeric_limits<double>::quiet_NaN();
constexpr double kSharpest = 60, kSharpestSphere = 400;  // limits of the averages over rows

std::vector<double> as_numbers(const std::vector<std::int64_t>& lengths) {
  return {lengths.begin(), lengths.end()};
}

void add_rules(LineChart& chart, const Comparison& comparison,
               const std::function<double(const ScaleRule&, std::int64_t)>& value) {
  for (std::size_t i = 0; i < comparison.rules.size(); ++i) {
    Series series;
    series.name = comparison.rules[i].text();
    series.x = as_numbers(comparison.lengths);
    for (const std::int64_t n : comparison.lengths)
      series.y.push_back(value(comparison.rules[i], n));
    series.colour = static_cast<int>(i);
    chart.series.push_back(std::move(series));
  }
}

Series curve(std::string name, const std::vector<double>& x, const std::function<double(double)>& y,
             bool reference = false) {
  Series series;
  series.name = name;
  series.x = x;
  for (const double value : x) series.y.push_back(y(value));
  series.reference = reference;
  return series;
}

// Lengths of the figures, up to 20000.
std::vector<double> figure_lengths(double step) {
  std::vector<double> n;
  for (double value = 40; value <= 20000; value += step) n.push_back(value);
  return n;
}

std::vector<double> values_at(const std::vector<double>& x,
                              const std::function<double(double)>& f) {
  std::vector<double> y;
  for (const double value : x) y.push_back(f(value));
  return y;
}

}  // namespace

double Comparison::lambda(const ScaleRule& rule, std::int64_t n) const {
  return rule.lambda({n, n - 1, n}, dim, rule.heads() == 1 ? 0 : head);
}

double Comparison::alpha(const ScaleRule& rule, std::int64_t n) const {
  return lambda(rule, n) * std::sqrt(static_cast<double>(dim));
}

std::vector<std::optional<theory::GradientSpread>> Comparison::spreads(std::int64_t n) const {
  std::vector<double> alphas;
  for (const ScaleRule& rule : rules) {
    if (const double value = alpha(rule, n); value >= 0 && value <= kSharpest)
      alphas.push_back(value);
  }
  const auto sampled = theory::sampled_gradient(static_cast<double>(n), alphas);
  std::vector<std::optional<theory::GradientSpread>> result;
  auto next = sampled.begin();
  for (const ScaleRule& rule : rules) {
    const double value = alpha(rule, n);
    result.push_back(value >= 0 && value <= kSharpest ? std::optional(*next++) : std::nullopt);
  }
  return result;
}

LineChart scale_chart(const Comparison& comparison) {
  LineChart chart = chart_named("scale law");
  add_rules(chart, comparison,
            [&](const auto& rule, std::int64_t n) { return comparison.lambda(rule, n); });
  return chart;
}

LineChart mass_chart(const Comparison& comparison) {
  LineChart chart = chart_named("mass law");
  add_rules(chart, comparison, [&](const auto& rule, std::int64_t n) {
    const double alpha = comparison.alpha(rule, n);
    if (!(alpha >= 0 && alpha <= kSharpest)) return kNoValue;
    return alpha * (1 - theory::normal_row(static_cast<double>(n), alpha).collision);
  });
  return chart;
}

LineChart starved_chart(const Comparison& comparison) {
  LineChart chart = chart_named("starved rows");
  add_rules(chart, comparison, [](const auto&, std::int64_t) { return kNoValue; });
  for (std::size_t i = 0; i < comparison.lengths.size(); ++i) {
    const auto spreads = comparison.spreads(comparison.lengths[i]);
    for (std::size_t rule = 0; rule < spreads.size(); ++rule) {
      if (spreads[rule]) chart.series[rule].y[i] = 100 * spreads[rule]->starved;
    }
  }
  return chart;
}

LineChart entropy_chart(const Comparison& comparison) {
  LineChart chart = chart_named("entropy law");
  add_rules(chart, comparison, [&](const auto& rule, std::int64_t n) {
    const double lambda = comparison.lambda(rule, n);
    if (!(lambda >= 0 && lambda * static_cast<double>(comparison.dim) <= kSharpestSphere))
      return kNoValue;
    return theory::sphere_row(static_cast<double>(n), comparison.dim, lambda).entropy;
  });
  chart.series.push_back(
      curve("ln n", as_numbers(comparison.lengths), [](double n) { return std::log(n); }, true));
  chart.series.back().colour = kNeutral;
  return chart;
}

LineChart normal_optimum_chart() {
  const auto all = figure_lengths(40);
  const theory::Fit fit = theory::fit_sqrt_log(all, values_at(all, theory::normal_optimum));
  LineChart chart = chart_named("normal optimum");
  const auto n = figure_lengths(400);
  chart.series.push_back(curve("alpha*", n, theory::normal_optimum));
  chart.series.push_back(curve(
      fmt::format("{:.4f} sqrt(ln n)", fit.c), n,
      [&](double x) { return fit.c * std::sqrt(std::log(x)); }, true));
  return chart;
}

LineChart cosine_optimum_chart(std::int64_t dim) {
  const auto optimum = [dim](double n) { return theory::cosine_optimum(n, dim); };
  const double c = theory::cosine_coefficient(dim);
  LineChart chart = chart_named("cosine optimum", {{"d", std::to_string(dim)}});
  const auto n = figure_lengths(400);
  chart.series.push_back(curve("alpha*", n, optimum));
  chart.series.push_back(
      curve(fmt::format("{:.4f} ln n", c), n, [&](double x) { return c * std::log(x); }, true));
  return chart;
}

LineChart coefficient_chart() {
  LineChart chart = chart_named("coefficient");
  const std::vector<double> dims = {8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096};
  const auto coefficient = [](double d) {
    return theory::cosine_coefficient(static_cast<std::int64_t>(d));
  };
  chart.series.push_back(curve("c", dims, coefficient));
  const double last = coefficient(dims.back()) / std::sqrt(dims.back());
  chart.series.push_back(
      curve("as sqrt(d)", dims, [&](double d) { return last * std::sqrt(d); }, true));
  chart.series.back().colour = kNeutral;
  return chart;
}

LineChart entropy_law_chart(double n, std::int64_t dim) {
  const double d = static_cast<double>(dim), unit = 1 / std::sqrt(d);
  LineChart chart =
      chart_named("entropy by scale", {{"n", fmt::format("{:g}", n)}, {"d", std::to_string(dim)}});
  std::vector<double> alphas;
  for (double alpha = 0; alpha <= std::min(6.0, 400 * unit); alpha += 0.125)
    alphas.push_back(alpha);
  chart.series = {
      curve("mean of rows", alphas,
            [&](double a) { return theory::sphere_row(n, dim, a * unit).entropy; }),
      curve("law", alphas,
            [&](double a) { return theory::sphere_entropy(n, dim, a * unit).entropy; }),
      curve("Laplace at this lambda", alphas,
            [&](double a) { return theory::sphere_entropy(n, dim, a * unit).saddle; }),
      curve(
          fmt::format("ln n - {:.4f} lambda d", theory::laplace_coefficient()), alphas,
          [&](double a) { return theory::sphere_entropy(n, dim, a * unit).laplace; }, true)};
  return chart;
}

LineChart dimension_chart(double dim) {
  LineChart chart = chart_named("dimensions");
  std::vector<double> n;
  for (double value = 16; value <= (1 << 20); value *= 4) n.push_back(value);
  chart.series.push_back(curve("8 ln n", n, [](double x) { return theory::jl_dimension(x); }));
  chart.series.push_back(curve(fmt::format("{} log_512 n", dim), n,
                               [&](double x) { return theory::matched_dimension(x, dim); }));
  chart.series.push_back(curve(fmt::format("d = {}", dim), n, [&](double) { return dim; }, true));
  return chart;
}

}  // namespace isentrope::report
