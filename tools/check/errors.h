// Errors of the kernels' arithmetic, and the comparison of results with budgets made of them.
#pragma once

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <limits>
#include <sstream>

#include "tools/check/budget.h"

namespace isentrope::check {

// Unit roundoff of float: half the distance between 1 and the next number.
inline constexpr double kUnit = 0x1p-24;
inline double unit_of(DType type) {
  return type == DType::f32 ? kUnit : type == DType::bf16 ? 0x1p-8 : 0x1p-11;
}
// Error of one weight e^t, to which tests/src/cpu/exp_test.cc holds the kernels' exp.
inline constexpr double kExpError = 2.2 * kUnit;
// Rounding of weights or their gradients to 16 bits before the product.
inline double rounding_of(DType type, bool rounds_f16) {
  return type == DType::bf16 || (type == DType::f16 && rounds_f16) ? unit_of(type) : 0;
}
// Absolute error: weights below 2^-126 are dropped, and so small results are no floats or halves.
inline double floor_of(DType type) { return type == DType::f16 ? 0x1p-24 : 1e-30; }

// Bound of the relative error of k roundings.
inline double gamma(double k) { return k * kUnit / (1 - k * kUnit); }

// Longest chain of additions of a kernel over n terms: 256 within a block, then over blocks.
inline double chain(std::int64_t n) {
  return static_cast<double>(std::min<std::int64_t>(n, 256) + n / 256 + 4);
}

// Relative error of weights with logit errors dx: each weight and their sum change by e^dx, 2 dx to
// first order. Beyond kAnyWeight the row may change arbitrarily, unbounded by first-order terms.
inline constexpr double kAnyWeight = 1e30;
inline double growth(double dx) { return std::fmin(std::expm1(2 * dx), kAnyWeight); }

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

// Error of a logit: dot product, rounding of lambda, their product, soft-cap and bias, and rounding
// of q to the type of the keys.
inline double logit_error(const Problem& p, const Arithmetic& arithmetic, double magnitude) {
  const bool rounds = p.key_type == DType::bf16 && arithmetic.rounds_queries;
  return (gamma(static_cast<double>(p.dim) + (p.soft_cap > 0 || p.bias ? 16 : 4)) +
          (rounds ? unit_of(DType::bf16) : 0)) *
         magnitude;
}

// Whether a gradient follows an output, or a tangent of one, that overflows f16: do.output does,
// and the row's gradients but dv.
class Overflows {
 public:
  using Field = std::vector<double> reference::GradientFields::*;

  explicit Overflows(const Problem& p)
      : dim_(as_size(p.dim)), rows_(as_size(p.batch * p.heads * p.queries)) {}
  void add(const Problem& p, const auto& outputs) {
    if (p.type != DType::f16) return;
    for (std::size_t i = 0; i < outputs.size(); ++i)
      if (std::isinf(rounded_to(p.type, static_cast<float>(outputs[i]))))
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

// Relative error of recomputed weights and of what enters a gradient beside them, for all rows:
// weights come from logits and a rounded lse, which may be that of a rounded q. do.output has an
// output that is rounded, or whose weights were. The soft-cap's slope has the relative error
// 2 dx / cap.
inline double weight_error(const Problem& p, const reference::Result& forward,
                           const Arithmetic& arithmetic) {
  double dx = 0, lse = 0;
  for (std::size_t row = 0; row < forward.statistics.size(); ++row) {
    dx = std::fmax(dx, logit_error(p, arithmetic, forward.logit_magnitude[row]));
    if (forward.statistics[row].support > 0)
      lse = std::fmax(lse, std::abs(forward.statistics[row].lse));
  }
  const double cap = p.soft_cap > 0 ? growth(dx / static_cast<double>(p.soft_cap)) + 8 * kUnit : 0;
  const double rounded_weights = rounding_of(type_of_keys(p), arithmetic.rounds_f16_weights);
  return std::fmin(growth(dx + 1.5 * kUnit * lse) + kExpError + cap +
                       (p.type == DType::f32 ? rounded_weights : unit_of(p.type)),
                   1e30);
}

}  // namespace isentrope::check
