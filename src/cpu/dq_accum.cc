#include "src/cpu/dq_accum.h"

#include <cmath>

#include "src/cpu/product/tensor_rows.h"
#include "src/cpu/steps/row_results.h"
#include "src/row/sink.h"

namespace isentrope {
namespace {

// Calls visit(batch, head, row) for every row of a shape [batch, heads, rows, ...].
template <std::size_t Rank, typename Visit>
void for_each_row(const std::array<std::int64_t, Rank>& extents, const Visit& visit) {
  for (std::int64_t batch = 0; batch < extents[0]; ++batch) {
    for (std::int64_t head = 0; head < extents[1]; ++head) {
      for (std::int64_t row = 0; row < extents[2]; ++row) visit(batch, head, row);
    }
  }
}

}  // namespace

// A single block writes the result directly, so it rounds once.
DqAccum::DqAccum(const TilePlan& plan, const AttentionGradients& result) : result_(result) {
  if (plan.blocks == 1) {
    dq_ = {result.dq};
    d_lambda_ = {result.d_lambda};
    return;
  }
  const auto [batches, heads, queries, dim] = result.dq.extents;
  const std::int64_t rows = batches * heads * queries,
                     share = rows * (dim + (result.d_lambda ? 1 : 0));
  storage_.resize(static_cast<std::size_t>(plan.blocks * share));
  for (std::int64_t block = 0; block < plan.blocks; ++block) {
    float* data = storage_.data() + block * share;
    dq_.emplace_back(contiguous_view<float, 4>(data, result.dq.extents));
    d_lambda_.push_back(
        result.d_lambda ? contiguous_view<float, 3>(data + rows * dim, {batches, heads, queries})
                        : View<float, 3>{});
  }
}

void DqAccum::add_up(const ParallelFor& parallel_for) const {
  if (dq_.size() == 1) return;
  const auto [batches, heads, queries, dim] = result_.dq.extents;
  // Threads take heads, whose blocks are added in order: bits do not depend on timing.
  const auto add_head = [&, heads = heads, queries = queries, dim = dim](std::int64_t index) {
    const std::int64_t batch = index / heads, head = index % heads;
    std::vector<float> sum(static_cast<std::size_t>(dim));
    for (std::int64_t query = 0; query < queries; ++query) {
      std::fill(sum.begin(), sum.end(), 0.0f);
      float lambda_sum = 0;
      for (std::size_t block = 0; block < dq_.size(); ++block) {
        // Partial sums are row-major. The caller's dq may have any strides, hence write_row().
        const std::int64_t at = (index * queries + query) * dim;
        const float* share = static_cast<const float*>(dq_[block].data) + at;
        for (std::size_t c = 0; c < sum.size(); ++c) sum[c] += share[c];
        if (result_.d_lambda) lambda_sum += d_lambda_[block](batch, head, query);
      }
      write_row(result_.dq, batch, head, query, 1, sum.data());
      if (result_.d_lambda) result_.d_lambda(batch, head, query) = lambda_sum;
    }
  };
  parallel_for(batches * heads, add_head);
}

// write_row() supports any strides and leaves the memory between rows untouched.
void fill_with_zeros(const Tensor& tensor) {
  if (!tensor) return;
  const std::vector<float> zeros(static_cast<std::size_t>(tensor.extents[3]));
  for_each_row(tensor.extents, [&](std::int64_t batch, std::int64_t head, std::int64_t row) {
    write_row(tensor, batch, head, row, 1, zeros.data());
  });
}

void fill_with_zeros(const View<float, 3>& view) {
  if (!view) return;
  for_each_row(view.extents, [&](std::int64_t batch, std::int64_t head, std::int64_t row) {
    view(batch, head, row) = 0;
  });
}

namespace {

// Sets each head's gradient to the sum of of_row(batch, head, query, lse) over its rows. In double,
// because rows of all batches mostly cancel.
template <typename OfRow>
void add_up_rows(const ConstTensor& output, const View<const float, 3>& lse,
                 const View<float, 1>& d_sinks, const OfRow& of_row) {
  std::vector<double> sums(static_cast<std::size_t>(d_sinks.extents[0]));
  for_each_row(output.extents, [&](std::int64_t batch, std::int64_t head, std::int64_t query) {
    const double of_keys = lse(batch, head, query);
    // A row without keys gives all weight to the sink, whatever its logit: no gradient.
    if (std::isinf(of_keys) && of_keys < 0) return;
    sums[static_cast<std::size_t>(head)] += of_row(batch, head, query, of_keys);
  });
  for (std::size_t head = 0; head < sums.size(); ++head)
    d_sinks(static_cast<std::int64_t>(head)) = static_cast<float>(sums[head]);
}

void fill_with_zeros(const View<float, 1>& d_sinks) {
  for (std::int64_t head = 0; head < d_sinks.extents[0]; ++head) d_sinks(head) = 0;
}

}  // namespace

void add_sink_gradient(const AttentionOptions& options, const AttentionGradientInput& gradient,
                       const View<float, 1>& d_sinks) {
  if (!gradient.d_output || !options.sinks) return fill_with_zeros(d_sinks);
  add_up_rows(gradient.output, gradient.statistics.lse, d_sinks,
              [&](std::int64_t batch, std::int64_t head, std::int64_t query, double lse) {
                // The weight of the sink, by symmetry; 1 - non_sink_weight would cancel.
                const double sink_weight = non_sink_weight(options.sinks(head), lse);
                return -sink_weight *
                       output_product(gradient.output, gradient.d_output, batch, head, query);
              });
}

void add_sink_gradient(const AttentionOptions& options, const AttentionSecondOrderInput& second,
                       const View<float, 1>& d_sinks) {
  if (!second.d_output || !options.sinks) return fill_with_zeros(d_sinks);
  const auto& tangents = second.tangents.sinks;
  add_up_rows(second.output, second.statistics.lse, d_sinks,
              [&](std::int64_t batch, std::int64_t head, std::int64_t query, double lse) {
                const double sink = options.sinks(head);
                const double rise =
                    static_cast<double>(second.statistic_tangents.lse(batch, head, query)) -
                    static_cast<double>(tangents ? tangents(head) : 0);
                const auto product = [&](const ConstTensor& output) {
                  return output_product(output, second.d_output, batch, head, query);
                };
                return non_sink_weight(sink, lse) *
                       (non_sink_weight(lse, sink) * rise * product(second.output) -
                        product(second.output_tangent));
              });
}

}  // namespace isentrope
