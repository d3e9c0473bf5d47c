#include "tools/check/budget.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "tools/check/errors.h"

namespace isentrope::check {
namespace {

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
    const double dx = logit_error(p, arithmetic, want.logit_magnitude[row]) +
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
KeyStatisticsReference reference_key_statistics(const Data& data, const reference::Result& forward,
                                                const Arithmetic& arithmetic) {
  const Problem& p = data.problem;
  const std::vector<double> weights(data.row_weights.begin(), data.row_weights.end());
  const std::vector<double> ones(weights.size(), 1);
  std::vector<double> of_row, errors, sizes, any, any_of_all;
  for (std::size_t row = 0; row < weights.size(); ++row) {
    const RowStats& stats = forward.statistics[row];
    const double dx = logit_error(p, arithmetic, forward.logit_magnitude[row]) +
                      (arithmetic.logits.empty() ? 0 : arithmetic.logits[row]);
    const double of_lse =
        kExpError + gamma(chain(stats.support)) + 5 * kUnit * (1 + std::abs(stats.lse));
    of_row.push_back(growth(dx + of_lse) + kExpError);
    sizes.push_back(std::abs(weights[row]));
    errors.push_back(sizes.back() * of_row.back());
    // If weights are unbounded, one that underflows in the reference may be 1.
    any_of_all.push_back(of_row.back() >= kAnyWeight ? 1 : 0);
    any.push_back(sizes.back() * any_of_all.back());
  }
  const double sums = gamma(48 + 16);  // within a tile of rows; tiles are added in double
  const auto sets = reference::received(data.reference_input(), data.options(),
                                        {weights, errors, sizes, ones, of_row});
  const std::size_t heads =
      sets[0].size() / static_cast<std::size_t>(std::max<std::int64_t>(p.keys, 1));
  const auto sum_of = [&](const std::vector<double>& errors_of_rows,
                          const std::vector<double>& sizes_of_rows,
                          const std::vector<double>& any_of_rows, std::size_t j) {
    const std::size_t rows = any_of_rows.size() / std::max<std::size_t>(heads, 1);
    const std::size_t head = p.sequences > 0 ? 0 : j / static_cast<std::size_t>(p.keys);
    const auto first = any_of_rows.begin() + static_cast<std::ptrdiff_t>(head * rows);
    const auto last =
        p.sequences > 0 ? any_of_rows.end() : first + static_cast<std::ptrdiff_t>(rows);
    return errors_of_rows[j] + sums * sizes_of_rows[j] + std::accumulate(first, last, 0.0);
  };
  KeyStatisticsReference result{{sets[0], {}}, {sets[3], {}}, {}};
  for (std::size_t j = 0; j < sets[0].size(); ++j) {
    result.received.budgets.push_back(sum_of(sets[1], sets[2], any, j));
    result.received_of_all.budgets.push_back(sum_of(sets[4], sets[3], any_of_all, j));
  }
  result.chosen.values =
      reference::weights_at(data.reference_input(), data.options(), data.chosen()).weights;
  for (std::size_t i = 0; i < result.chosen.values.size(); ++i) {
    const std::size_t row = i / Data::kChosenKeys;
    result.chosen.budgets.push_back(of_row[row] * result.chosen.values[i] + any_of_all[row]);
  }
  return result;
}

void add_key_statistics_error(const KeyStatisticsReference& want, const ForwardResult& got,
                              Ratio& to) {
  Worst worst(DType::f32);
  const auto add = [&](const char* name, const std::vector<float>& values,
                       const KeyStatisticsReference::Numbers& wanted) {
    for (std::size_t j = 0; j < values.size(); ++j)
      worst.add(name, j, values[j], wanted.values[j], wanted.budgets[j]);
  };
  add("received", got.received, want.received);
  add("received_of_all", got.received_of_all, want.received_of_all);
  add("weights_at", got.chosen, want.chosen);
  const Ratio ratio = worst.ratio();
  to.of_result.insert(ratio.of_result.begin(), ratio.of_result.end());
  if (!(ratio.worst > to.worst)) return;
  to.worst = ratio.worst;
  to.where = ratio.where;
}

namespace {

// Compares gradients, with row_factor the relative error of those that sum over a row's keys.
Ratio gradient_error_over_budget(const Problem& p, const reference::Result& forward,
                                 const reference::Gradients& want, const BackwardResult& got,
                                 const Arithmetic& arithmetic, double row_factor,
                                 const TangentResult* tangents = nullptr) {
  const auto rows = static_cast<double>(p.queries * (p.kv_heads > 0 ? p.heads / p.kv_heads : 1));
  const double column = gamma(rows + static_cast<double>(p.value_dim) + 16);
  const double column_factor = row_factor + column;
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
           (1 + factor) * ((want.nearly_tied.*field)[i] + tied + (want.underflowing.*field)[i] +
                           denormal_error * (want.of_mean.*field)[i]);
  };
  Overflows overflows(p);
  overflows.add(p, forward.output);
  if (tangents) overflows.add(p, tangents->output);
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
      worst.add(name, i, results[i], value, budget(field, i, factor));
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

}  // namespace

Ratio backward_error_over_budget(const Problem& p, const reference::Result& forward,
                                 const reference::Gradients& want, const BackwardResult& got,
                                 const Arithmetic& arithmetic) {
  const double weight = weight_error(p, forward, arithmetic);
  const double sums = gamma(chain(p.keys) + static_cast<double>(p.value_dim + p.dim) + 16);
  return gradient_error_over_budget(p, forward, want, got, arithmetic,
                                    weight * (2 + weight) + sums);
}

Ratio second_order_error_over_budget(const Problem& p, const reference::Result& forward,
                                     const TangentResult& tangents,
                                     const reference::Gradients& want, const BackwardResult& got,
                                     const Arithmetic& arithmetic) {
  // A term has a weight, a gradient and its tangent as factors, and lse's tangent in the last. Each
  // has the error of weights.
  const double weight = std::fmin(weight_error(p, forward, arithmetic), 1e8);
  const double sums = gamma(2 * (chain(p.keys) + static_cast<double>(p.value_dim + p.dim)) + 40);
  return gradient_error_over_budget(p, forward, want, got, arithmetic,
                                    std::pow(1 + weight, 4) - 1 + sums, &tangents);
}

}  // namespace isentrope::check
