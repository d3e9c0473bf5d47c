// List of the statistics of a row, with all that the library needs to know about each.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include "isentrope/row_state.h"
#include "isentrope/view.h"

namespace isentrope {

// One T for each statistic, and a Count for those that count keys: views, vectors or tensors with
// the numbers of all rows. for_each_statistic tells what each means. A row that sees no key has lse
// and max_logit -inf and 0 elsewhere; a row with a logit of NaN or +inf has NaN in all but lambda
// and support. Python's Statistics and C's isentrope_statistics are generated from these lines.
template <typename T, typename Count = T>
struct StatisticFields {
  T lse{};
  T entropy{};
  T collision{};
  T variance{};
  T distance{};
  T max_probability{};
  T max_logit{};
  T lambda{};
  Count support{};
};

// Views [batch, heads, queries]. Statistics without data are not computed.
using RowStatistics = StatisticFields<View<float, 3>, View<std::int64_t, 3>>;
using ConstRowStatistics = StatisticFields<View<const float, 3>, View<const std::int64_t, 3>>;

// The statistics of one row that follow from its keys.
struct RowStats {
  double lse = -std::numeric_limits<double>::infinity();
  double entropy = 0;
  double collision = 0;
  double max_logit = -std::numeric_limits<double>::infinity();
  double variance = 0;
  double distance = 0;
  double max_probability = 0;
  std::int64_t support = 0;  // 0 exactly for an empty row
};

// Returns the statistics of a row from its sums. The maximum is attained, so s0 >= 1 and s1 <= 0:
// entropy is a sum of two non-negative terms without cancellation, however peaked the row. A NaN
// logit makes every statistic NaN.
[[nodiscard]] inline RowStats finalize(const RowState& a) {
  if (a.empty()) return {};
  const double log_s0 = std::log(a.s0), mean = a.s1 / a.s0;
  const double variance = a.s1_prime / a.s0 - mean * mean;
  return {.lse = a.max + log_s0,
          .entropy = log_s0 - mean,
          .collision = a.s2 / (a.s0 * a.s0),
          .max_logit = std::isnan(a.s0) ? a.s0 : a.max,
          .variance = variance < 0 ? 0 : variance,
          .distance = a.s_distance / a.s0,
          .max_probability = a.s0 / (a.s0 * a.s0),  // 1 / s0, and NaN where all logits are -inf
          .support = a.support};
}

// Bits for the sums of a RowState that only some statistics need.
enum Sums : unsigned { kOnlyS0 = 0, kS1 = 1, kS1Prime = 2, kS2 = 4, kDistance = 8 };
inline constexpr std::pair<unsigned, std::string_view> kSumNames[] = {
    {kS1, "s1"}, {kS1Prime, "s1_prime"}, {kS2, "s2"}, {kDistance, "distance"}};

// Bits for the terms of a logit's gradient: constants of a row, factors of ln p_j, of its square
// and of p_j, the distance of each key, the row's largest key. The backward pass chooses its
// compiled version by them.
enum GradientTerms : unsigned {
  kNoGradient = 0,
  kConstants = 1,
  kLinear = 2,
  kQuadratic = 4,
  kCollision = 8,
  kMoments = kLinear | kQuadratic | kCollision,
  kDistances = 16,
  kLargestKey = 32
};
inline constexpr std::pair<unsigned, std::string_view> kTermNames[] = {
    {kLinear, "linear"},
    {kQuadratic, "quadratic"},
    {kCollision, "collision"},
    {kDistances, "distance"},
    {kLargestKey, "largest_key"}};

// How a statistic x merges over two disjoint parts a and b of a row's keys, with w the share of the
// softmax that a part has.
enum class Merge {
  own,           // a formula of its own: lse, which gives the shares, and support, which adds up
  mean,          // w_a x_a + w_b x_b
  squares,       // w_a^2 x_a + w_b^2 x_b
  largest_part,  // max(w_a x_a, w_b x_b)
  largest        // max(x_a, x_b)
};

// Number of a head that a log of a model in training has: of its rows.
enum class Logged { never, mean, largest };

// Properties of a statistic that front ends, validation, kernels and reports need.
struct Statistic {
  std::string_view name;
  std::string_view unit{};  // empty for shares of a row and for factors
  std::string_view means;
  Logged logged = Logged::never;
  std::string_view label{};  // words of its charts, if it is logged
  Merge merge;  // for entropy and variance only a part: attention_state.h has all terms
  double RowStats::* of_row = nullptr;  // member that finalize() sets; null if it needs no keys
  unsigned sums = kOnlyS0;              // the sums that the forward pass needs for it
  unsigned gradient = kNoGradient;      // GradientTerms; none: not differentiable
  // The results of the forward pass, besides output and lse, that its gradient needs.
  std::array<std::string_view, 2> needs{};

  [[nodiscard]] constexpr bool differentiable() const { return gradient != kNoGradient; }
  [[nodiscard]] constexpr bool needs_result(std::string_view result) const {
    return differentiable() && (result == "lse" || result == needs[0] || result == needs[1]);
  }
};

// Calls visit(statistic, fields.NAME...) for each statistic, in the order that is used everywhere.
// Takes any number of StatisticFields, which are visited in parallel.
template <typename Visit, typename... Fields>
constexpr void for_each_statistic(const Visit& visit, Fields&... fields) {
  visit(Statistic{.name = "lse",
                  .unit = "nats",
                  .means = "ln sum_j e^z_j, the log-sum-exp of the row's logits.",
                  .merge = Merge::own,
                  .of_row = &RowStats::lse,
                  .gradient = kConstants},
        fields.lse...);
  visit(Statistic{.name = "entropy",
                  .unit = "nats",
                  .means = "-sum p ln p, the Shannon entropy, in [0, ln support].",
                  .logged = Logged::mean,
                  .label = "entropy",
                  .merge = Merge::mean,
                  .of_row = &RowStats::entropy,
                  .sums = kS1,
                  .gradient = kLinear,
                  .needs = {"entropy"}},
        fields.entropy...);
  visit(Statistic{.name = "collision",
                  .means = "sum p^2, the collision probability, in [1 / support, 1].",
                  .merge = Merge::squares,
                  .of_row = &RowStats::collision,
                  .sums = kS2,
                  .gradient = kCollision,
                  .needs = {"collision"}},
        fields.collision...);
  visit(Statistic{.name = "variance",
                  .unit = "nats^2",
                  .means = "Variance of z under p (the varentropy). "
                           "Without soft-cap and bias it is -d entropy / d ln lambda.",
                  .merge = Merge::mean,
                  .of_row = &RowStats::variance,
                  .sums = kS1 | kS1Prime,
                  .gradient = kLinear | kQuadratic,
                  .needs = {"entropy", "variance"}},
        fields.variance...);
  visit(Statistic{.name = "distance",
                  .unit = "keys",
                  .means = "sum p_j |i - j|, the mean distance in keys from the row's position "
                           "to those of its keys: small in local heads, large in global ones.",
                  .merge = Merge::mean,
                  .of_row = &RowStats::distance,
                  .sums = kDistance,
                  .gradient = kDistances,
                  .needs = {"distance"}},
        fields.distance...);
  visit(Statistic{.name = "max_probability",
                  .means = "Largest p_j, e^(max_logit - lse), in [1 / support, 1]. If several "
                           "keys are largest, which has no derivative, the gradient goes to the "
                           "first.",
                  .logged = Logged::mean,
                  .label = "largest probability",
                  .merge = Merge::largest_part,
                  .of_row = &RowStats::max_probability,
                  .gradient = kLargestKey,
                  .needs = {"max_probability", "max_logit"}},
        fields.max_probability...);
  visit(Statistic{.name = "max_logit",
                  .unit = "nats",
                  .means = "Largest z_j. Divided by lambda it is the largest score.",
                  .logged = Logged::largest,
                  .label = "largest logit",
                  .merge = Merge::largest,
                  .of_row = &RowStats::max_logit},
        fields.max_logit...);
  visit(
      Statistic{
          .name = "lambda", .means = "The softmax scale of the row.", .merge = Merge::largest},
      fields.lambda...);
  visit(Statistic{.name = "support",
                  .unit = "keys",
                  .means = "Number of keys the row sees, without those that a bias of -inf "
                           "hides.",
                  .merge = Merge::own},
        fields.support...);
}

// Returns the list as JSON for front ends: name, unit, what it means, how it is logged and
// merged, sums, terms of its gradient, needs, and whether it is differentiable and from sums.
[[nodiscard]] std::string statistics_json();

// Returns the same views for reading.
[[nodiscard]] inline ConstRowStatistics as_const(const RowStatistics& statistics) {
  ConstRowStatistics result;
  for_each_statistic([](const Statistic&, const auto& from, auto& to) { to = from; }, statistics,
                     result);
  return result;
}

}  // namespace isentrope
