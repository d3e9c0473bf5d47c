// The statistics of a reference row, and their gradients.
#pragma once

#include <cstddef>
#include <vector>

#include "isentrope/statistics.h"
#include "src/reference/rows.h"

namespace isentrope::reference {

// Sum, and the same sum over magnitudes.
struct Sum {
  double value = 0, magnitude = 0;

  void add(double term, double size) {
    value += term;
    magnitude += size;
  }
};

// Computes the statistics of a row and sets the keys' log_p.
[[nodiscard]] RowStats statistics_of(std::vector<Key>& keys);

// Returns the first key with the largest logit.
[[nodiscard]] std::size_t largest_key(const std::vector<Key>& keys);

// Returns whether rounding in f32 may decide which of two keys is the larger.
[[nodiscard]] bool is_near(const Row& row, const Key& a, const Key& b);

// Returns whether two keys are equally large in any arithmetic that is the same for both: their
// logits are equal, and their numbers too or without effect.
[[nodiscard]] bool is_tie(const Input& in, const Row& row, const Key& a, const Key& b);

// Returns the contribution of a row's upstream gradients d to dz_j / p_j of one key.
[[nodiscard]] Sum statistics_slope(const Key& key, bool is_largest, const RowStats& stats,
                                   const StatisticFields<double>& d);

// Returns the tangents of a row's statistics but lse, for tangents of its ln p_j.
[[nodiscard]] StatisticFields<Sum> statistics_tangent(const std::vector<Key>& keys,
                                                      const RowStats& stats,
                                                      const std::vector<Sum>& log_p);

// Returns the tangent of statistics_slope() for constant d. log_p: of the key's ln p_j.
[[nodiscard]] Sum statistics_slope_tangent(const Key& key, const Sum& log_p, const RowStats& stats,
                                           const StatisticFields<Sum>& tangents,
                                           const StatisticFields<double>& d);

}  // namespace isentrope::reference
