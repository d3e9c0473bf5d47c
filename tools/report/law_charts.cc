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

// Returns the chart of that name with a line for each rule.
LineChart rules_chart(std::string_view name, const Comparison& comparison,
                      const std::function<double(const ScaleRule&, std::int64_t)>& value) {
  LineChart chart = chart_named(name);
  for (const ScaleRule& rule : comparison.rules)
    chart.series.push_back(curve(rule.text(), as_numbers(comparison.lengths), [&](double n) {
      return value(rule, static_cast<std::int64_t>(n));
    }));
  return chart;
}

// Lengths of the figures, up to 20000.
std::vector<double> figure_lengths(double step) {
  std::vector<double> n;
  for (double value = 40; value <= 20000; value += step) n.push_back(value);
  return n;
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
  return rules_chart("scale law", comparison,
                     [&](const auto& rule, std::int64_t n) { return comparison.lambda(rule, n); });
}

LineChart mass_chart(const Comparison& comparison) {
  return rules_chart("mass law", comparison, [&](const auto& rule, std::int64_t n) {
    const double alpha = comparison.alpha(rule, n);
    if (!(alpha >= 0 && alpha <= kSharpest)) return kNoValue;
    return alpha * (1 - theory::normal_row(static_cast<double>(n), alpha).collision);
  });
}

LineChart starved_chart(const Comparison& comparison) {
  LineChart chart =
      rules_chart("starved rows", comparison, [](const auto&, std::int64_t) { return kNoValue; });
  for (std::size_t i = 0; i < comparison.lengths.size(); ++i) {
    const auto spreads = comparison.spreads(comparison.lengths[i]);
    for (std::size_t rule = 0; rule < spreads.size(); ++rule) {
      if (spreads[rule]) chart.series[rule].y[i] = 100 * spreads[rule]->starved;
    }
  }
  return chart;
}

LineChart entropy_chart(const Comparison& comparison) {
  LineChart chart = rules_chart("entropy law", comparison, [&](const auto& rule, std::int64_t n) {
    const double lambda = comparison.lambda(rule, n);
    if (!(lambda >= 0 && lambda * static_cast<double>(comparison.dim) <= kSharpestSphere))
      return kNoValue;
    return theory::sphere_row(static_cast<double>(n), comparison.dim, lambda).entropy;
  });
  const auto largest = [](double n) { return std::log(n); };
  chart.series.push_back(curve("ln n", as_numbers(comparison.lengths), largest, true));
  chart.series.back().colour = kNeutral;
  return chart;
}

LineChart normal_optimum_chart() {
  const Series all = curve("", figure_lengths(40), theory::normal_optimum);
  const double c = theory::fit_sqrt_log(all.x, all.y).c;
  const auto n = figure_lengths(400);
  const auto fitted = [c](double x) { return c * std::sqrt(std::log(x)); };
  LineChart chart = chart_named("normal optimum");
  chart.series = {curve("alpha*", n, theory::normal_optimum),
                  curve(fmt::format("{:.4f} sqrt(ln n)", c), n, fitted, true)};
  return chart;
}

LineChart cosine_optimum_chart(std::int64_t dim) {
  const double c = theory::cosine_coefficient(dim);
  const auto n = figure_lengths(400);
  LineChart chart = chart_named("cosine optimum", {{"d", std::to_string(dim)}});
  chart.series = {
      curve("alpha*", n, [dim](double x) { return theory::cosine_optimum(x, dim); }),
      curve(fmt::format("{:.4f} ln n", c), n, [c](double x) { return c * std::log(x); }, true)};
  return chart;
}

LineChart coefficient_chart() {
  const std::vector<double> dims = {8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096};
  const auto coefficient = [](double d) {
    return theory::cosine_coefficient(static_cast<std::int64_t>(d));
  };
  const double last = coefficient(dims.back()) / std::sqrt(dims.back());
  const auto as_root = [last](double d) { return last * std::sqrt(d); };
  LineChart chart = chart_named("coefficient");
  chart.series = {curve("c", dims, coefficient), curve("as sqrt(d)", dims, as_root, true)};
  chart.series.back().colour = kNeutral;
  return chart;
}

LineChart entropy_law_chart(double n, std::int64_t dim) {
  const double unit = 1 / std::sqrt(static_cast<double>(dim));
  std::vector<double> alphas;
  for (double alpha = 0; alpha <= std::min(6.0, 400 * unit); alpha += 0.125)
    alphas.push_back(alpha);
  const auto law = [&](double alpha) { return theory::sphere_entropy(n, dim, alpha * unit); };
  LineChart chart =
      chart_named("entropy by scale", {{"n", fmt::format("{:g}", n)}, {"d", std::to_string(dim)}});
  chart.series = {curve("mean of rows", alphas,
                        [&](double a) { return theory::sphere_row(n, dim, a * unit).entropy; }),
                  curve("law", alphas, [&](double a) { return law(a).entropy; }),
                  curve("Laplace at this lambda", alphas, [&](double a) { return law(a).saddle; }),
                  curve(
                      fmt::format("ln n - {:.4f} lambda d", theory::laplace_coefficient()), alphas,
                      [&](double a) { return law(a).laplace; }, true)};
  return chart;
}

LineChart dimension_chart(double dim) {
  std::vector<double> n;
  for (double value = 16; value <= (1 << 20); value *= 4) n.push_back(value);
  LineChart chart = chart_named("dimensions");
  chart.series = {curve("8 ln n", n, [](double x) { return theory::jl_dimension(x); }),
                  curve(fmt::format("{} log_512 n", dim), n,
                        [&](double x) { return theory::matched_dimension(x, dim); }),
                  curve(fmt::format("d = {}", dim), n, [&](double) { return dim; }, true)};
  return chart;
}

}  // namespace isentrope::report
