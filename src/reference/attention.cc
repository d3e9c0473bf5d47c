#include <cmath>
#include <cstdlib>

#include "isentrope/reference.h"

namespace isentrope::reference {
namespace {

struct Row {
  std::int64_t batch, head, query;
  KeyRange keys;
  double lambda;
};

// Calls visit(row, index) for every row in row-major order.
template <typename Visit>
void for_each_row(const Input& in, const ScaleRule& rule, const Mask& mask, const Visit& visit) {
  const auto [batches, heads, queries, dim] = in.q.extents;
  const std::int64_t keys = in.k.extents[2];
  std::size_t index = 0;
  for (std::int64_t b = 0; b < batches; ++b) {
    for (std::int64_t h = 0; h < heads; ++h) {
      for (std::int64_t i = 0; i < queries; ++i, ++index) {
        const KeyRange range = visible_keys(mask, i, queries, keys);
        visit(Row{b, h, i, range, rule.lambda(row_length(mask, i, queries, keys), dim, h)}, index);
      }
    }
  }
}

double score(const Input& in, const Row& row, std::int64_t j) {
  double sum = 0;
  for (std::int64_t c = 0; c < in.q.extents[3]; ++c) {
    sum += in.q(row.batch, row.head, row.query, c) * in.k(row.batch, row.head, j, c);
  }
  return sum;
}

double score_magnitude(const Input& in, const Row& row, std::int64_t j) {
  double sum = 0;
  for (std::int64_t c = 0; c < in.q.extents[3]; ++c) {
    sum += std::abs(in.q(row.batch, row.head, row.query, c) * in.k(row.batch, row.head, j, c));
  }
  return sum;
}

// The logits of the admitted keys, and their state.
std::vector<double> logits(const Input& in, const Row& row, RowState& state) {
  std::vector<double> z;
  for (std::int64_t j = row.keys.begin; j < row.keys.end; ++j) {
    z.push_back(row.lambda * score(in, row, j));
    state = merge(state, row_state_of(z.back()));
  }
  return z;
}

double at(const std::vector<double>& values, std::size_t index) {
  return values.empty() ? 0 : values[index];
}

}  // namespace

Result attention_forward(const Input& in, const ScaleRule& rule, const Mask& mask) {
  const std::int64_t value_dim = in.v.extents[3];
  Result result;
  for_each_row(in, rule, mask, [&](const Row& row, std::size_t) {
    RowState state;
    const std::vector<double> z = logits(in, row, state);
    const RowStats stats = finalize(state);
    double logit_magnitude = 0, slope = 0;
    std::vector<double> output(value_dim), magnitude(value_dim);
    for (std::int64_t j = row.keys.begin; j < row.keys.end; ++j) {
      const double x = z[j - row.keys.begin] - stats.lse;  // ln p
      const double p = std::exp(x);
      for (std::int64_t c = 0; c < value_dim; ++c) {
        const double v = in.v(row.batch, row.head, j, c);
        output[c] += p * v;
        magnitude[c] += p * std::abs(v);
      }
      logit_magnitude = std::fmax(logit_magnitude, row.lambda * score_magnitude(in, row, j));
      slope += p * std::abs(x + stats.entropy);
    }
    result.output.insert(result.output.end(), output.begin(), output.end());
    result.value_magnitude.insert(result.value_magnitude.end(), magnitude.begin(), magnitude.end());
    result.statistics.push_back(stats);
    result.lambda.push_back(row.lambda);
    result.logit_magnitude.push_back(logit_magnitude);
    result.entropy_slope.push_back(slope);
  });
  return result;
}

// With x = ln p_j, u = x + H and D = sum_i p_i do.v_i, the chain rule through each result gives
//
//   dz_j = p_j [ do.v_j - D + d_lse - d_H u + 2 d_C (p_j - C) + d_V (u^2 + 2u - V) ]
//   dq = lambda sum_j dz_j k_j      dk_j = sum_i dz_ij lambda_i q_i      dv_j = sum_i p_ij do_i
Gradients attention_backward(const Input& in, const ScaleRule& rule, const Mask& mask,
                             const GradientInput& g) {
  const auto [batches, heads, queries, dim] = in.q.extents;
  const std::int64_t keys = in.k.extents[2], value_dim = in.v.extents[3];
  Gradients result;
  for (auto* values : {&result.dq, &result.dq_magnitude}) values->resize(batches * heads * queries * dim);
  for (auto* values : {&result.dk, &result.dk_magnitude}) values->resize(batches * heads * keys * dim);
  for (auto* values : {&result.dv, &result.dv_magnitude}) {
    values->resize(batches * heads * keys * value_dim);
  }
  for_each_row(in, rule, mask, [&](const Row& row, std::size_t index) {
    RowState state;
    const std::vector<double> z = logits(in, row, state);
    const RowStats stats = finalize(state);
    const std::size_t first_key = (row.batch * heads + row.head) * keys;
    std::vector<double> dp(z.size()), dp_magnitude(z.size());
    double mean_dp = 0, mean_magnitude = 0;
    for (std::size_t j = 0; j < z.size(); ++j) {
      const double p = std::exp(z[j] - stats.lse);
      for (std::int64_t c = 0; c < value_dim; ++c) {
        const std::size_t key = first_key + row.keys.begin + j;
        const double d_output = at(g.d_output, index * value_dim + c);
        const double product = d_output * in.v(row.batch, row.head, row.keys.begin + j, c);
        dp[j] += product;
        dp_magnitude[j] += std::abs(product);
        result.dv[key * value_dim + c] += p * d_output;
        result.dv_magnitude[key * value_dim + c] += p * std::abs(d_output);
      }
      mean_dp += p * dp[j];
      mean_magnitude += p * dp_magnitude[j];
    }
    const double d_lse = at(g.d_lse, index), d_entropy = at(g.d_entropy, index);
    const double d_collision = at(g.d_collision, index), d_variance = at(g.d_variance, index);
    for (std::size_t j = 0; j < z.size(); ++j) {
      const double x = z[j] - stats.lse, p = std::exp(x), u = x + stats.entropy;
      const double dz = p * (dp[j] - mean_dp + d_lse - d_entropy * u +
                             2 * d_collision * (p - stats.collision) +
                             d_variance * (u * u + 2 * u - stats.variance));
      const double magnitude =
          p * (dp_magnitude[j] + mean_magnitude + std::abs(d_lse) + std::abs(d_entropy) * (std::abs(u) + 1) +
               2 * std::abs(d_collision) * (p + stats.collision) +
               std::abs(d_variance) * (u * u + 4 * std::abs(u) + stats.variance + 2));
      const std::size_t key = first_key + row.keys.begin + j;
      for (std::int64_t c = 0; c < dim; ++c) {
        const double lq = row.lambda * in.q(row.batch, row.head, row.query, c);
        const double lk = row.lambda * in.k(row.batch, row.head, row.keys.begin + j, c);
        result.dq[index * dim + c] += dz * lk;
        result.dq_magnitude[index * dim + c] += magnitude * std::abs(lk);
        result.dk[key * dim + c] += dz * lq;
        result.dk_magnitude[key * dim + c] += magnitude * std::abs(lq);
      }
    }
  });
  return result;
}

}  // namespace isentrope::reference
