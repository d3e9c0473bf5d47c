// The list of the statistics of a row, with everything that the library needs to know about each.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "isentrope/row_state.h"
#include "isentrope/view.h"

namespace isentrope {

// One T for each statistic, and a Count for those that count: views, vectors or tensors with the
// numbers of all rows. Units are nats, or keys for distance. A row that sees no key has lse -inf,
// max_logit -inf, and 0 everywhere else.
template <typename T, typename Count = T>
struct StatisticFields {
  T lse{};        // ln sum_j e^z_j
  T entropy{};    // -sum p ln p, in [0, ln support]
  T collision{};  // sum p^2, in [1 / support, 1]
  T variance{};   // of z under p: the varentropy
  T distance{};   // sum p_j |i - j| in keys, from the row's position (mask.h) to those of its keys
  T max_probability{};  // largest p_j, e^(max_logit - lse): the weight of the largest key
  T max_logit{};        // largest z_j
  T lambda{};           // the softmax scale of the row
  Count support{};      // keys the row sees
};

// Views [batch, heads, queries]. Those without data are not computed.
using RowStatistics = StatisticFields<View<float, 3>, View<std::int64_t, 3>>;
using ConstRowStatistics = StatisticFields<View<const float, 3>, View<const std::int64_t, 3>>;

// Sums of a RowState that only some statistics need.
enum Sums : unsigned { kOnlyS0 = 0, kS1 = 1, kS1Prime = 2, kS2 = 4, kDistance = 8 };

// Terms of the gradient of the logits, by which the backward pass chooses its compiled version and
// what it computes beforehand: constants of a row, functions of ln p_j and p_j, the distance of
// each key, the row's largest key.
enum GradientTerms : unsigned {
  kNoGradient = 0,
  kConstants = 1,
  kMoments = 2,
  kDistances = 4,
  kLargestKey = 8
};

// What front ends, validation and kernels need to know about a statistic.
struct Statistic {
  std::string_view name;
  double RowStats::* of_row = nullptr;  // where finalize() leaves it; null: it needs no keys
  unsigned sums = kOnlyS0;              // the sums that the forward pass needs for it
  unsigned gradient = kNoGradient;      // its terms; src/cpu/steps/statistic_gradient-inl.h
  // Whether two parts of a row's keys merge to their mean, weighted by their shares of the softmax.
  // Entropy and variance add a term for the difference of the parts.
  bool weighted_mean = false;
  // The results of the forward pass, besides output and lse, that its gradient needs.
  std::array<std::string_view, 2> needs{};

  [[nodiscard]] constexpr bool differentiable() const { return gradient != kNoGradient; }
  [[nodiscard]] constexpr bool needs_result(std::string_view result) const {
    return differentiable() && (result == "lse" || result == needs[0] || result == needs[1]);
  }
};

// Calls visit(statistic, fields.NAME...) for each statistic, in the order that is used everywhere:
// of one StatisticFields, of several in parallel, or of none.
template <typename Visit, typename... Fields>
constexpr void for_each_statistic(const Visit& visit, Fields&... fields) {
  visit(Statistic{.name = "lse", .of_row = &RowStats::lse, .gradient = kConstants}, fields.lse...);
  visit(Statistic{.name = "entropy",
                  .of_row = &RowStats::entropy,
                  .sums = kS1,
                  .gradient = kMoments,
                  .weighted_mean = true,
                  .needs = {"entropy"}},
        fields.entropy...);
  visit(Statistic{.name = "collision",
                  .of_row = &RowStats::collision,
                  .sums = kS2,
                  .gradient = kMoments,
                  .needs = {"collision"}},
        fields.collision...);
  visit(Statistic{.name = "variance",
                  .of_row = &RowStats::variance,
                  .sums = kS1 | kS1Prime,
                  .gradient = kMoments,
                  .weighted_mean = true,
                  .needs = {"entropy", "variance"}},
        fields.variance...);
  visit(Statistic{.name = "distance",
                  .of_row = &RowStats::distance,
                  .sums = kDistance,
                  .gradient = kDistances,
                  .weighted_mean = true,
                  .needs = {"distance"}},
        fields.distance...);
  visit(Statistic{.name = "max_probability",
                  .of_row = &RowStats::max_probability,
                  .gradient = kLargestKey,
                  .needs = {"max_probability", "max_logit"}},
        fields.max_probability...);
  visit(Statistic{.name = "max_logit", .of_row = &RowStats::max_logit}, fields.max_logit...);
  visit(Statistic{.name = "lambda"}, fields.lambda...);
  visit(Statistic{.name = "support"}, fields.support...);
}

[[nodiscard]] inline ConstRowStatistics as_const(const RowStatistics& statistics) {
  ConstRowStatistics result;
  for_each_statistic([](const Statistic&, const auto& from, auto& to) { to = from; }, statistics,
                     result);
  return result;
}

}  // namespace isentrope
