// The statistics of a reference row, and their gradients.
#pragma once

#include <cstddef>
#include <vector>

#include "isentrope/statistics.h"
#include "src/reference/rows.h"

namespace isentrope::reference {

// A sum, and the same sum over magnitudes.
struct Sum {
  double value = 0, magnitude = 0;

  void add(double term, double size) {
    value += term;
    magnitude += size;
  }
};

// Also sets the keys' log_p.
[[nodiscard]] RowStats statistics_of(std::vector<Key>& keys);

// The first of those with the largest logit.
[[nodiscard]] std::size_t largest_key(const std::vector<Key>& keys);

// What the gradients d of the statistics of a row add to dz_j / p_j of one of its keys.
[[nodiscard]] Sum statistics_slope(const Key& key, bool is_largest, const RowStats& stats,
                                   const StatisticFields<double>& d);

}  // namespace isentrope::reference
