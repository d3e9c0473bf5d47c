#include "src/cpu/query_tangents.h"

namespace isentrope {

QueryTangents::QueryTangents(const AttentionInput& in, const ScaleTable& scale,
                             const AttentionTangents& tangents, const ParallelFor& parallel_for)
    : tensor_(tangents.q) {
  if (!tangents.lambda) return;
  const auto [batches, heads, queries, dim] = in.q.extents;
  scaled_.resize(static_cast<std::size_t>(batches * heads * queries * dim));
  parallel_for(batches * heads,
               [&, heads = heads, queries = queries, dim = dim](std::int64_t index) {
                 const std::int64_t batch = index / heads, head = index % heads;
                 float* to = scaled_.data() + index * queries * dim;
                 for (std::int64_t query = 0; query < queries; ++query) {
                   const float lambda = scale.of(batch, head).before_cap[query],
                               d_lambda = tangents.lambda(batch, head, query);
                   for (std::int64_t c = 0; c < dim; ++c) {
                     const float of_q = tangents.q ? lambda * tangents.q(batch, head, query, c) : 0;
                     *to++ = of_q + d_lambda * in.q(batch, head, query, c);
                   }
                 }
               });
  tensor_ = contiguous_view<const float, 4>(scaled_.data(), in.q.extents);
}

}  // namespace isentrope
