#include "tests/support/attention_problem.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <limits>
#include <random>
#include <sstream>

namespace isentrope::testing {
namespace {

// Half the distance between 1 and the next float.
constexpr double kUnit = 0x1p-24;
// Of one weight e^t: what tests/exp_test.cc holds the kernels' exp to.
constexpr double kExpError = 2.2 * kUnit;

// Absolute: weights below 2^-126 are dropped, and results that small are no floats.
constexpr double kFloor = 1e-30;

// What k roundings in a row may add up to, relatively.
double gamma(double k) { return k * kUnit / (1 - k * kUnit); }

// The longest chain of additions a kernel makes over n terms: 256 within a block, then over blocks.
double chain(std::int64_t n) { return static_cast<double>(std::min<std::int64_t>(n, 256) + n / 256 + 4); }

std::vector<float> normal_floats(std::size_t count, double magnitude, std::mt19937& random) {
  std::normal_distribution<float> normal(0, static_cast<float>(magnitude));
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

template <typename T>
View<T, 4> view_of(T* data, const Problem& p, std::int64_t rows, std::int64_t columns) {
  return contiguous_view<T, 4>(data, {p.batch, p.heads, rows, columns});
}

class Worst {
 public:
  void add(const char* name, std::size_t index, double got, double want, double budget) {
    if (std::isnan(want) && std::isnan(got)) return;
    if (got == want) return;  // infinities of the same sign
    double ratio = std::abs(got - want) / (budget + kFloor);
    if (std::isnan(ratio)) ratio = std::numeric_limits<double>::infinity();
    if (!(ratio > ratio_.worst)) return;
    std::ostringstream text;
    text << std::setprecision(9) << name << "[" << index << "] = " << got << ", reference " << want
         << ", budget " << budget;
    ratio_ = {ratio, text.str()};
  }
  [[nodiscard]] Ratio ratio() const { return ratio_; }

 private:
  Ratio ratio_;
};

}  // namespace

std::string Problem::text() const {
  const char* const masks[] = {"none", "causal:top_left", "causal:bottom_right"};
  return "shape=" + std::to_string(batch) + "x" + std::to_string(heads) + "x" + std::to_string(queries) +
         "x" + std::to_string(keys) + "x" + std::to_string(dim) + ":" + std::to_string(value_dim) +
         " mask=" + masks[static_cast<int>(causal)] + " rule=" + rule.text() +
         " magnitude=" + std::to_string(magnitude) + " seed=" + std::to_string(seed);
}

Data::Data(const Problem& p) : problem(p) {
  std::mt19937 random(p.seed);
  const auto size = [&](std::int64_t rows, std::int64_t columns) {
    return static_cast<std::size_t>(p.batch * p.heads * rows * columns);
  };
  q = normal_floats(size(p.queries, p.dim), p.magnitude, random);
  k = normal_floats(size(p.keys, p.dim), 1, random);
  v = normal_floats(size(p.keys, p.value_dim), 1, random);
}

AttentionInput Data::input() const {
  return {view_of(q.data(), problem, problem.queries, problem.dim),
          view_of(k.data(), problem, problem.keys, problem.dim),
          view_of(v.data(), problem, problem.keys, problem.value_dim)};
}

reference::Input Data::reference_input() const {
  q64_.assign(q.begin(), q.end());
  k64_.assign(k.begin(), k.end());
  v64_.assign(v.begin(), v.end());
  const auto view = [&](const std::vector<double>& data, std::int64_t rows, std::int64_t columns) {
    return view_of(data.data(), problem, rows, columns);
  };
  return {view(q64_, problem.queries, problem.dim), view(k64_, problem.keys, problem.dim),
          view(v64_, problem.keys, problem.value_dim)};
}

ForwardResult run_forward(const Data& data, const ParallelFor& parallel_for) {
  const Problem& p = data.problem;
  const std::size_t rows = static_cast<std::size_t>(p.batch * p.heads * p.queries);
  ForwardResult result;
  result.output.resize(rows * static_cast<std::size_t>(p.value_dim));
  for (auto* values : {&result.lse, &result.entropy, &result.collision, &result.max_logit, &result.variance,
                       &result.lambda}) {
    values->resize(rows);
  }
  result.support.resize(rows);
  const auto rows_view = [&](auto* values) {
    return contiguous_view<std::remove_pointer_t<decltype(values)>, 3>(values, {p.batch, p.heads, p.queries});
  };
  const AttentionOutput out{
      view_of(result.output.data(), p, p.queries, p.value_dim),
      {rows_view(result.lse.data()), rows_view(result.entropy.data()), rows_view(result.collision.data()),
       rows_view(result.max_logit.data()), rows_view(result.variance.data()),
       rows_view(result.lambda.data()), rows_view(result.support.data())}};
  attention_forward(data.input(), {p.rule, p.mask(), parallel_for}, out);
  return result;
}

reference::GradientInput random_gradient(const Problem& p) {
  std::mt19937 random(p.seed + 1000);
  std::normal_distribution<float> normal;
  const std::size_t rows = static_cast<std::size_t>(p.batch * p.heads * p.queries);
  const auto draw = [&](std::size_t count) {
    std::vector<double> values(count);
    for (double& value : values) value = normal(random);
    return values;
  };
  return {draw(rows * static_cast<std::size_t>(p.value_dim)), draw(rows), draw(rows), draw(rows), draw(rows)};
}

BackwardResult run_backward(const Data& data, const ForwardResult& forward,
                            const reference::GradientInput& gradient, const ParallelFor& parallel_for) {
  const Problem& p = data.problem;
  BackwardResult result{std::vector<float>(data.q.size()), std::vector<float>(data.k.size()),
                        std::vector<float>(data.v.size())};
  const auto floats = [](const std::vector<double>& values) {
    return std::vector<float>(values.begin(), values.end());
  };
  const auto d_output = floats(gradient.d_output), d_lse = floats(gradient.d_lse),
             d_entropy = floats(gradient.d_entropy), d_collision = floats(gradient.d_collision),
             d_variance = floats(gradient.d_variance);
  const auto rows = [&](const std::vector<float>& values) {
    const auto view = contiguous_view<const float, 3>(values.data(), {p.batch, p.heads, p.queries});
    const auto count = static_cast<std::size_t>(p.batch * p.heads * p.queries);
    return values.size() == count ? view : View<const float, 3>{};
  };
  const AttentionGradientInput in{
      view_of(forward.output.data(), p, p.queries, p.value_dim),
      rows(forward.lse), rows(forward.entropy), rows(forward.collision), rows(forward.variance),
      d_output.empty() ? View<const float, 4>{} : view_of(d_output.data(), p, p.queries, p.value_dim),
      rows(d_lse), rows(d_entropy), rows(d_collision), rows(d_variance)};
  attention_backward(data.input(), {p.rule, p.mask(), parallel_for}, in,
                     {view_of(result.dq.data(), p, p.queries, p.dim),
                      view_of(result.dk.data(), p, p.keys, p.dim),
                      view_of(result.dv.data(), p, p.keys, p.value_dim)});
  return result;
}

Ratio forward_error_over_budget(const Data& data, const ForwardResult& got) {
  const Problem& p = data.problem;
  const reference::Result want = reference::attention_forward(data.reference_input(), p.rule, p.mask());
  Worst worst;
  for (std::size_t row = 0; row < want.statistics.size(); ++row) {
    const RowStats& stats = want.statistics[row];
    // Of any logit: the dot product, lambda's own rounding and the product with it.
    const double dx = gamma(static_cast<double>(p.dim) + 4) * want.logit_magnitude[row];
    const double sums = kExpError + gamma(chain(stats.support));
    const double slope = want.entropy_slope[row], mean = stats.lse - stats.max_logit - stats.entropy;
    worst.add("lse", row, got.lse[row], stats.lse, dx + sums + 2 * kUnit * std::abs(stats.lse));
    worst.add("entropy", row, got.entropy[row], stats.entropy, 2 * dx * slope + sums * (2 + stats.entropy));
    worst.add("collision", row, got.collision[row], stats.collision, stats.collision * (4 * dx + 2 * sums));
    worst.add("max_logit", row, got.max_logit[row], stats.max_logit,
              dx + kUnit * std::abs(stats.max_logit));
    worst.add("variance", row, got.variance[row], stats.variance,
              2 * dx * (stats.variance + slope) + 4 * sums * (stats.variance + mean * mean));
    worst.add("lambda", row, got.lambda[row], want.lambda[row], kUnit * want.lambda[row]);
    worst.add("support", row, static_cast<double>(got.support[row]), static_cast<double>(stats.support), 0);
    for (std::int64_t c = 0; c < p.value_dim; ++c) {
      const std::size_t at = row * static_cast<std::size_t>(p.value_dim) + static_cast<std::size_t>(c);
      worst.add("output", at, got.output[at], want.output[at],
                (2 * dx + sums + gamma(chain(stats.support) + 2)) * want.value_magnitude[at] +
                    kUnit * std::abs(want.output[at]));
    }
  }
  return worst.ratio();
}

Ratio backward_error_over_budget(const Data& data, const reference::GradientInput& gradient,
                                 const BackwardResult& got) {
  const Problem& p = data.problem;
  const reference::Input input = data.reference_input();
  const reference::Gradients want = reference::attention_backward(input, p.rule, p.mask(), gradient);
  const reference::Result forward = reference::attention_forward(input, p.rule, p.mask());
  double dx = 0, lse = 0;
  for (std::size_t row = 0; row < forward.statistics.size(); ++row) {
    dx = std::fmax(dx, gamma(static_cast<double>(p.dim) + 4) * forward.logit_magnitude[row]);
    if (forward.statistics[row].support > 0) lse = std::fmax(lse, std::abs(forward.statistics[row].lse));
  }
  // Weights come from logits and a rounded lse; dz sums d_v products; dq, dk and dv sum over a row or
  // a column of the tile grid.
  const double weight = 2 * dx + 3 * kUnit * lse + kExpError;
  const double sums = gamma(chain(p.keys) + static_cast<double>(p.value_dim + p.dim) + 16);
  const double column = gamma(static_cast<double>(p.queries) + static_cast<double>(p.value_dim) + 16);
  const double row_factor = 2 * weight + sums, column_factor = 2 * weight + sums + column;
  Worst worst;
  const auto compare = [&](const char* name, const std::vector<float>& results,
                           const std::vector<double>& values, const std::vector<double>& magnitudes,
                           double factor) {
    for (std::size_t i = 0; i < results.size(); ++i) {
      worst.add(name, i, results[i], values[i], factor * magnitudes[i]);
    }
  };
  compare("dq", got.dq, want.dq, want.dq_magnitude, row_factor);
  compare("dk", got.dk, want.dk, want.dk_magnitude, column_factor);
  compare("dv", got.dv, want.dv, want.dv_magnitude, column_factor);
  return worst.ratio();
}

}  // namespace isentrope::testing
