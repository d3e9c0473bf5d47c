#include "tools/check/budget.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <limits>
#include <sstream>

namespace isentrope::check {
namespace {

// Unit roundoff of float: half the distance between 1 and the next number.
constexpr double kUnit = 0x1p-24;
double unit_of(DType type) {
  return type == DType::f32 ? kUnit : type == DType::bf16 ? 0x1p-8 : 0x1p-11;
}
// Error of one weight e^t, to which tests/src/cpu/exp_test.cc holds the kernels' exp.
constexpr double kExpError = 2.2 * kUnit;
// Rounding of weights or their gradients to 16 bits before the product.
double rounding_of(DType type, bool rounds_f16) {
  return type == DType::bf16 || (type == DType::f16 && rounds_f16) ? unit_of(type) : 0;
}
// Absolute error: weights below 2^-126 are dropped, and so small results are no floats or halves.
double floor_of(DType type) { return type == DType::f16 ? 0x1p-24 : 1e-30; }

// Bound of the relative error of k roundings.
double gamma(double k) { return k * kUnit / (1 - k * kUnit); }

// Longest chain of additions of a kernel over n terms: 256 within a block, then over blocks.
double chain(std::int64_t n) {
  return static_cast<double>(std::min<std::int64_t>(n, 256) + n / 256 + 4);
}

// Relative error of weights with logit errors dx: each weight and their sum change by e^dx, 2 dx to
// first order. Beyond kAnyWeight the row may change arbitrarily, unbounded by first-order terms.
constexpr double kAnyWeight = 1e30;
double growth(double dx) { return std::fmin(std::expm1(2 * dx), kAnyWeight); }

class Worst {
 public:
  explicit Worst(DType type) : type_(type) {}

  // Compares a float result.
  void add(const char* name, std::size_t index, double got, double want, double budget) {
    compare(name, index, got, want, budget + 1e-30);
  }
  void add_rounded(const char* name, std::size_t index, double got, double want, double budget) {
    // If the reference is non-finite, the result must be too; Inf or NaN depends on underflow.
    if (!std::isfinite(want) && !std::isfinite(got)) return;
    // Numbers that overflow the type are infinite.
    if (std::isinf(got) &&
        std::isinf(rounded_to(type_, static_cast<float>(std::abs(want) + budget))))
      return;
    compare(name, index, got, want,
            budget * (1 + unit_of(type_)) + unit_of(type_) * std::abs(want) + floor_of(type_));
  }
  [[nodiscard]] Ratio ratio() const { return ratio_; }

 private:
  void compare(const char* name, std::size_t index, double got, double want, double budget) {
    double& of_result = ratio_.of_result[name];
    if (std::isnan(want) && !std::isfinite(got)) return;
    // If the budget exceeds float, intermediate values may overflow.
    if (budget > std::numeric_limits<float>::max() && !std::isfinite(got)) return;
    // The nearest float to the reference is always correct; so are infinities of the same sign.
    if (got == want || got == static_cast<double>(static_cast<float>(want))) return;
    double ratio = std::abs(got - want) / budget;
    if (std::isnan(ratio)) ratio = std::numeric_limits<double>::infinity();
    of_result = std::fmax(of_result, ratio);
    if (!(ratio > ratio_.worst)) return;
    std::ostringstream text;
    text << std::setprecision(9) << name << "[" << index << "] = " << got << ", reference " << want
         << ", budget " << budget;
    ratio_.worst = ratio;
    ratio_.where = text.str();
  }

  DType type_;
  Ratio ratio_;
};

// Error of a logit: dot product, rounding of lambda, their product, soft-cap and bias.
double logit_error(const Problem& p, double magnitude) {
  return gamma(static_cast<double>(p.dim) + (p.soft_cap > 0 || p.bias ? 16 : 4)) * magnitude;
}

// Error of a logit if q is rounded to the type of the keys.
double rounding_of_queries(const Problem& p, const Arithmetic& arithmetic, double magnitude) {
  const bool rounds = p.key_type == DType::bf16 && arithmetic.rounds_queries;
  return rounds ? unit_of(DType::bf16) * magnitude : 0;
}

// Whether a gradient follows an output that overflows f16: do.output does, and the row's gradients
// but dv.
class Overflows {
 public:
  using Field = std::vector<double> reference::GradientFields::*;

  Overflows(const Problem& p, const reference::Result& forward) : dim_(as_size(p.dim)) {
    rows_.resize(forward.statistics.size());
    if (p.type != DType::f16) return;
    for (std::size_t i = 0; i < forward.output.size(); ++i)
      if (std::isinf(rounded_to(p.type, static_cast<float>(forward.output[i]))))
        any_ = rows_[i / as_size(p.value_dim)] = true;
  }
  // i: index of a result. Sums over several rows follow each of them.
  [[nodiscard]] bool reach(Field field, std::size_t i) const {
    if (field == &reference::Gradients::dq) return rows_[i / dim_];
    return any_ && field != &reference::Gradients::dv;
  }

 private:
  static std::size_t as_size(std::int64_t x) { return static_cast<std::size_t>(x); }
  std::size_t dim_;
  std::vector<bool> rows_;
  bool any_ = false;
};

// Error of a logit's gradient that is denormal in f16 after the scaling by a bound of its row or
// tile: 2^-39 abs(do) max abs(v_j). 0 for other arithmetic.
double gradient_error(const Problem& p, const reference::Result& forward,
                      const Arithmetic& arithmetic) {
  if (p.type != DType::f16 || !arithmetic.rounds_f16_gradients) return 0;
  const auto columns = static_cast<std::size_t>(p.value_dim);
  double largest = 0;
  for (std::size_t at = 0; at < forward.value_sum.size(); at += columns) {
    double sum = 0;
    for (std::size_t c = 0; c < columns; ++c) sum += forward.value_sum[at + c];
    if (std::isfinite(sum)) largest = std::fmax(largest, sum);
  }
  // Components of do are normally distributed.
  return 0x1p-39 * (std::sqrt(static_cast<double>(p.value_dim)) + 5) * largest;
}

}  // namespace

Ratio forward_error_over_budget(const Problem& p, const reference::Result& want,
                                const ForwardResult& got, const Arithmetic& arithmetic) {
  Worst worst(p.type);
  for (std::size_t row = 0; row < want.statistics.size(); ++row) {
    const RowStats& stats = want.statistics[row];
    const auto add = [&](const char* name, const auto& values, double wanted, double budget) {
      if (asks_for(p, name)) worst.add(name, row, static_cast<double>(values[row]), wanted, budget);
    };
    const double dx = logit_error(p, want.logit_magnitude[row]) +
                      rounding_of_queries(p, arithmetic, want.logit_magnitude[row]) +
                      (arithmetic.logits.empty() ? 0 : arithmetic.logits[row]);
    const double sums = kExpError + gamma(chain(stats.support));
    const double slope = want.entropy_slope[row], mean = want.mean_below_max[row];
    // Along the way to the wrong logits weights are at most 1 + growth times as large, and x - mu
    // is off by 2 dx.
    const double slope_error = 2 * dx * (1 + growth(dx)) * (slope + 2 * dx);
    add("lse", got.lse, stats.lse, dx + sums + 2 * kUnit * std::abs(stats.lse));
    add("entropy", got.entropy, stats.entropy, slope_error + sums * (2 + stats.entropy));
    add("collision", got.collision, stats.collision, stats.collision * (growth(2 * dx) + 2 * sums));
    add("max_probability", got.max_probability, stats.max_probability,
        stats.max_probability * (growth(dx) + sums));
    add("max_logit", got.max_logit, stats.max_logit, dx + kUnit * std::abs(stats.max_logit));
    add("variance", got.variance, stats.variance,
        2 * dx * (1 + growth(dx)) * stats.variance + slope_error +
            4 * sums * (stats.variance + mean * mean));
    // A block sums distances within it, up to 256 keys, and then shifts to the row's position. The
    // sum runs over the whole block, and each partial sum, 128 on average, is rounded.
    const double slope_of_distance = want.distance_slope[row];
    add("distance", got.distance, stats.distance,
        growth(dx) * (slope_of_distance + kUnit) + 2 * sums * (stats.distance + 256) +
            256 * 128 * kUnit);
    add("lambda", got.lambda, want.lambda[row], 3 * kUnit * std::abs(want.lambda[row]));
    add("support", got.support, static_cast<double>(stats.support), 0);
    const double sink = p.sink ? dx + sums + 4 * kUnit * (1 + std::abs(stats.lse)) : 0;
    const double rounding = rounding_of(type_of_keys(p), arithmetic.rounds_f16_weights);
    // Weights rounded to f16 are scaled by 2^14, so the smallest are off by 2^-39, otherwise 2^-25.
    const double denormal =
        type_of_keys(p) == DType::f16 && arithmetic.rounds_f16_weights ? 0x1p-39 : 0;
    for (std::int64_t c = 0; c < p.value_dim; ++c) {
      const std::size_t at =
          row * static_cast<std::size_t>(p.value_dim) + static_cast<std::size_t>(c);
      // If weights are unbounded, one that underflows in the reference may be anything.
      const double any = growth(dx) < kAnyWeight ? 0 : 2 * want.value_sum[at];
      worst.add_rounded(
          "output", at, got.output[at], want.output[at],
          (growth(dx) + sums + sink + rounding + gamma(chain(stats.support) + 2)) *
                  want.value_magnitude[at] +
              any + denormal * want.value_sum[at] + kUnit * std::abs(want.output[at]) +
              (arithmetic.values.empty() ? 0 : arithmetic.values[at] * (1 + growth(dx))));
    }
  }
  return worst.ratio();
}

// A weight has the error of its logit and of the lse, which is rounded twice: to f32 and in log2.
// Sums of rows are linear in these, so the reference adds the errors as it adds the weights.
ReceivedReference reference_received(const Data& data, const reference::Result& forward,
                                     const Arithmetic& arithmetic) {
  if (data.problem.sequences > 0) return {};
  const Problem& p = data.problem;
  std::vector<double> weights(data.row_weights.begin(), data.row_weights.end());
  std::vector<double> errors, sizes;
  for (std::size_t row = 0; row < weights.size(); ++row) {
    const RowStats& stats = forward.statistics[row];
    const double dx = logit_error(p, forward.logit_magnitude[row]) +
                      rounding_of_queries(p, arithmetic, forward.logit_magnitude[row]) +
                      (arithmetic.logits.empty() ? 0 : arithmetic.logits[row]);
    const double of_lse =
        kExpError + gamma(chain(stats.support)) + 5 * kUnit * (1 + std::abs(stats.lse));
    sizes.push_back(std::abs(weights[row]));
    errors.push_back(sizes.back() * (growth(dx + of_lse) + kExpError));
  }
  const auto sets =
      reference::received(data.reference_input(), data.options(), {weights, errors, sizes});
  const double sums = gamma(48 + 16);  // within a tile of rows; tiles are added in double
  ReceivedReference result{sets[0], {}};
  for (std::size_t j = 0; j < result.values.size(); ++j) {
    const std::size_t head = j / static_cast<std::size_t>(p.keys);
    double any = 0;  // if weights are unbounded, one that underflows in the reference may be 1
    for (std::size_t row = head * static_cast<std::size_t>(p.queries);
         row < (head + 1) * static_cast<std::size_t>(p.queries); ++row) {
      if (sizes[row] > 0 && errors[row] >= sizes[row] * kAnyWeight) any += sizes[row];
    }
    result.budgets.push_back(sets[1][j] + sums * sets[2][j] + any);
  }
  return result;
}

void add_received_error(const ReceivedReference& want, const ForwardResult& got, Ratio& to) {
  Worst worst(DType::f32);
  for (std::size_t j = 0; j < got.received.size(); ++j)
    worst.add("received", j, got.received[j], want.values[j], want.budgets[j]);
  const Ratio ratio = worst.ratio();
  to.of_result.insert(ratio.of_result.begin(), ratio.of_result.end());
  if (!(ratio.worst > to.worst)) return;
  to.worst = ratio.worst;
  to.where = ratio.where;
}

Ratio backward_error_over_budget(const Problem& p, const reference::Result& forward,
                                 const reference::Gradients& want, const BackwardResult& got,
                                 const Arithmetic& arithmetic) {
  double dx = 0, lse = 0;
  for (std::size_t row = 0; row < forward.statistics.size(); ++row) {
    dx = std::fmax(dx, logit_error(p, forward.logit_magnitude[row]));
    if (forward.statistics[row].support > 0)
      lse = std::fmax(lse, std::abs(forward.statistics[row].lse));
  }
  // Weights come from logits and a rounded lse. dz sums value_dim products, one with an output
  // rounded to the problem's type. dq, dk and dv sum over a row or a column. The soft-cap's slope
  // has the relative error 2 dx / cap.
  const double cap = p.soft_cap > 0 ? growth(dx / static_cast<double>(p.soft_cap)) + 8 * kUnit : 0;
  const double weight = std::fmin(growth(dx + 1.5 * kUnit * lse) + kExpError + cap +
                                      (p.type == DType::f32 ? 0 : unit_of(p.type)),
                                  1e30);
  const double sums = gamma(chain(p.keys) + static_cast<double>(p.value_dim + p.dim) + 16);
  const auto rows = static_cast<double>(p.queries * (p.kv_heads > 0 ? p.heads / p.kv_heads : 1));
  const double column = gamma(rows + static_cast<double>(p.value_dim) + 16);
  const double row_factor = weight * (2 + weight) + sums, column_factor = row_factor + column;
  // dz is rounded for products of 16 bits. So are weights: dv, without do.output, has room for it.
  const double rounding = rounding_of(p.type, arithmetic.rounds_f16_gradients);
  Worst worst(p.type);
  // A denormal half output is off by 2^-25, and so is do.output for components of do up to 5.
  const double denormal_error =
      p.type == DType::f16 ? 0x1p-25 * 5 * static_cast<double>(p.value_dim) : 0;
  const double of_logits = gradient_error(p, forward, arithmetic);
  using Field = std::vector<double> reference::GradientFields::*;
  const auto budget = [&](Field field, std::size_t i, double factor) {
    const double tied = arithmetic.separates_equal_keys ? (want.tied.*field)[i] : 0;
    return factor * (want.magnitude.*field)[i] + of_logits * (want.of_logits.*field)[i] +
           (1 + factor) * ((want.nearly_tied.*field)[i] + tied);
  };
  const Overflows overflows(p, forward);
  const auto compare_rounded = [&](const char* name, const std::vector<float>& results, Field field,
                                   double factor) {
    for (std::size_t i = 0; i < results.size(); ++i)
      if (std::isfinite(results[i]) || !overflows.reach(field, i))
        worst.add_rounded(name, i, results[i], (want.*field)[i], budget(field, i, factor));
  };
  const auto compare = [&](const char* name, const std::vector<float>& results, Field field,
                           double factor) {
    for (std::size_t i = 0; i < results.size(); ++i) {
      const double value = (want.*field)[i];
      if (!std::isfinite(results[i]) && (!std::isfinite(value) || overflows.reach(field, i)))
        continue;
      worst.add(
          name, i, results[i], value,
          budget(field, i, factor) + (1 + factor) * denormal_error * (want.of_mean.*field)[i]);
    }
  };
  compare_rounded("dq", got.dq, &reference::Gradients::dq, row_factor + rounding);
  compare_rounded("dk", got.dk, &reference::Gradients::dk, column_factor + rounding);
  compare_rounded("dv", got.dv, &reference::Gradients::dv, column_factor);
  compare("d_bias", got.d_bias, &reference::Gradients::d_bias, row_factor);
  compare("d_lambda", got.d_lambda, &reference::Gradients::d_lambda, row_factor + rounding);
  compare("d_sinks", got.d_sinks, &reference::Gradients::d_sinks, column_factor);
  return worst.ratio();
}

}  // namespace isentrope::check
