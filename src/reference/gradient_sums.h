// Sums of the reference's gradients, and where a key's terms belong in them.
#pragma once

#include <cstdint>
#include <vector>

#include "isentrope/reference.h"
#include "src/reference/rows.h"
#include "src/reference/statistics.h"

namespace isentrope::reference {

// Kernels take weights below 2^-126.5 for 0 (src/cpu/steps/exp-inl.h). Smaller weights than this
// may be among them: if rounding moves one by more than 2^1.5, budgets exceed the gradients anyway.
inline constexpr double kLeastWeight = 0x1p-125;

[[nodiscard]] inline double at_or_0(const std::vector<double>& values, std::size_t index) {
  return values.empty() ? 0 : values[index];
}

[[nodiscard]] inline double& element(std::vector<double>& values, std::int64_t index) {
  return values[static_cast<std::size_t>(index)];
}

// Returns dp_j = w m_j do.v_j for each seen key; w: non-sink weight, m_j: dropout's factor.
[[nodiscard]] std::vector<Sum> weight_gradients(const View<const double, 4>& v, const Row& row,
                                                const std::vector<double>& d_output);

// Indices of one key's terms in the gradients.
struct Places {
  Places(const Input& in, const Row& reference_row, const Key& key)
      : row(static_cast<std::int64_t>(reference_row.index)),
        key_row((reference_row.batch * in.k.extents[1] + reference_row.kv_head) * in.k.extents[2] +
                key.index),
        dq(row * in.q.extents[3]),
        dk(key_row * in.q.extents[3]),
        dv(key_row * in.v.extents[3]),
        d_bias(row * in.k.extents[2] + key.index) {}

  std::int64_t row, key_row, dq, dk, dv, d_bias;
};

// Flat arrays of the results, each with the sum over magnitudes.
class Sums {
 public:
  Sums(Gradients& gradients, std::vector<double> GradientFields::* field, std::int64_t count)
      : values_(gradients.*field), magnitudes_(gradients.magnitude.*field) {
    GradientFields* const all[] = {
        &gradients,          &gradients.magnitude,    &gradients.nearly_tied,
        &gradients.tied,     &gradients.underflowing, &gradients.of_mean,
        &gradients.of_logits};
    for (GradientFields* fields : all) (fields->*field).assign(static_cast<std::size_t>(count), 0);
  }

  void add(std::int64_t index, double value, double magnitude) const {
    element(values_, index) += value;
    element(magnitudes_, index) += magnitude;
  }

 private:
  std::vector<double>& values_;
  std::vector<double>& magnitudes_;
};

// The sums of all gradients, zeros at first. `r` must outlive them.
struct GradientSums {
  GradientSums(const Input& in, bool has_bias, Gradients& r)
      : rows(in.q.extents[0] * in.q.extents[1] * in.q.extents[2]),
        key_rows(in.k.extents[0] * in.k.extents[1] * in.k.extents[2]),
        dq(r, &Gradients::dq, rows * in.q.extents[3]),
        dk(r, &Gradients::dk, key_rows * in.q.extents[3]),
        dv(r, &Gradients::dv, key_rows * in.v.extents[3]),
        d_bias(r, &Gradients::d_bias, has_bias ? rows * in.k.extents[2] : 0),
        d_lambda(r, &Gradients::d_lambda, rows),
        d_sinks(r, &Gradients::d_sinks, in.q.extents[1]) {}

  std::int64_t rows, key_rows;
  Sums dq, dk, dv, d_bias, d_lambda, d_sinks;
};

}  // namespace isentrope::reference
