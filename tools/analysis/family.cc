#include "tools/analysis/family.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace isentrope::analysis {
namespace {

// Returns the indices of values that are not NaN, sorted by value.
std::vector<std::size_t> rising(const std::vector<double>& p) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < p.size(); ++i) {
    if (!std::isnan(p[i])) order.push_back(i);
  }
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return p[i]; });
  return order;
}

}  // namespace

std::vector<double> holm(const std::vector<double>& p) {
  std::vector<double> adjusted = p;
  const std::vector<std::size_t> order = rising(p);
  double largest = 0;  // of smaller ones
  for (std::size_t rank = 0; rank < order.size(); ++rank) {
    const auto left = static_cast<double>(order.size() - rank);
    largest = std::max(largest, std::min(1.0, left * p[order[rank]]));
    adjusted[order[rank]] = largest;
  }
  return adjusted;
}

std::vector<double> benjamini_hochberg(const std::vector<double>& p) {
  std::vector<double> adjusted = p;
  const std::vector<std::size_t> order = rising(p);
  double smallest = 1;  // of larger ones
  for (std::size_t rank = order.size(); rank-- > 0;) {
    const double share = static_cast<double>(order.size()) / static_cast<double>(rank + 1);
    smallest = std::min(smallest, share * p[order[rank]]);
    adjusted[order[rank]] = smallest;
  }
  return adjusted;
}

}  // namespace isentrope::analysis
