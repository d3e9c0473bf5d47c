// Error of results due to a cache in 8 bits (docs/contributors/numerics.md).

#include <algorithm>
#include <cmath>

#include "tools/check/budget.h"

namespace isentrope::check {
namespace {

// Largest error of numbers in a group with this largest magnitude: half a step of 127, rounding of
// quotient and product, and underflow of the scale.
double step_error(double largest) { return largest / 254 * (1 + 0x1p-14) + 0x1p-127; }

// Errors for each batch and key head, key and column group: [row * groups + group].
std::vector<double> step_errors(const View<const double, 4>& rows, std::int64_t group) {
  const auto [batches, heads, keys, columns] = rows.extents;
  std::vector<double> errors;
  for (std::int64_t row = 0; row < batches * heads * keys; ++row) {
    const double* numbers = rows.data + row * columns;
    for (std::int64_t c = 0; c < columns; c += group) {
      double largest = 0;
      for (std::int64_t i = c; i < c + group; ++i)
        largest = std::fmax(largest, std::abs(numbers[i]));
      errors.push_back(step_error(largest));
    }
  }
  return errors;
}

}  // namespace

void add_cache_errors(const Data& data, const reference::Result& want, Arithmetic& to) {
  const Problem& p = data.problem;
  const reference::Input in = data.reference_input();
  const std::int64_t groups = p.dim / p.cache_group, value_groups = p.value_dim / p.cache_group;
  const std::vector<double> of_keys = step_errors(in.k, p.cache_group);
  const std::vector<double> of_values = step_errors(in.v, p.cache_group);
  for (std::int64_t row = 0; row < p.batch * p.heads * p.queries; ++row) {
    const std::int64_t head = row / p.queries % p.heads, query = row % p.queries;
    std::int64_t batch = row / p.queries / p.heads;
    while (in.cu_seq_q && in.cu_seq_q(batch + 1) <= query) ++batch;
    const std::int64_t first = (batch * p.kv_heads + head / (p.heads / p.kv_heads)) * p.keys;
    const double* q = in.q.data + row * p.dim;
    double logit = 0;
    std::vector<double> value(static_cast<std::size_t>(value_groups));
    for (std::int64_t key = first; key < first + p.keys; ++key) {
      double score = 0;
      for (std::int64_t c = 0; c < p.dim; ++c)
        score +=
            std::abs(q[c]) * of_keys[static_cast<std::size_t>(key * groups + c / p.cache_group)];
      logit = std::fmax(logit, score);
      for (std::int64_t g = 0; g < value_groups; ++g) {
        double& of_group = value[static_cast<std::size_t>(g)];
        of_group = std::fmax(of_group, of_values[static_cast<std::size_t>(key * value_groups + g)]);
      }
    }
    to.logits.push_back(std::abs(want.lambda[static_cast<std::size_t>(row)]) * logit);
    // Weights sum to at most 1, before dropout scales them.
    for (std::int64_t c = 0; c < p.value_dim; ++c) {
      to.values.push_back(value[static_cast<std::size_t>(c / p.cache_group)] / (1 - p.dropout));
    }
  }
}

}  // namespace isentrope::check
