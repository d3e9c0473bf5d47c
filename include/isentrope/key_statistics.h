// Statistics of keys: the weight that each key receives, and the weights of chosen keys.
//
//   p_ij = e^(z_ij - lse_i)     received_j = sum_i w_i p_ij
//
// z is that of attention.h, and lse the result of attention_forward() under the same input and
// options. Eviction of cache entries (H2O, SnapKV) and attention sinks are read off these numbers;
// no other attention without a matrix of weights returns them.
//
// A sink takes its share of the weights, so a row's weights sum to less than 1. Dropout does not
// count, as in the statistics of rows. Both functions read q and k only: v may be absent. k may be
// paged or 8-bit codes.
#pragma once

#include <cstdint>

#include "isentrope/attention.h"
#include "isentrope/view.h"

namespace isentrope {

// Rows of a call, [batch, heads, queries].
struct KeyStatisticsRows {
  View<const float, 3> lse{};  // of attention_forward()
  // w, by which rows count; without data: 1. Rows of weight 0 are not read, so the last 64 rows of
  // a long call cost little (SnapKV), and their NaN reaches no key.
  View<const float, 3> weights{};
};

// Computes the weight that each key receives from the rows of each query head: f32 [batch, heads,
// keys], or [sequences, heads, keys] if sequences differ. A key that no row sees receives 0. A row
// with a lse of NaN makes the keys it sees NaN, and no other.
//
// Takes about half the time of attention_forward(), and memory for the result; a decode step is
// faster with AttentionOutput::received, which reads the keys once for both. Bits do not depend
// on the threads. Throws as attention_forward() does.
void received(const AttentionInput& input, const AttentionOptions& options,
              const KeyStatisticsRows& rows, const View<float, 3>& result);

// Arrays that weights_at() writes, [batch, heads, queries, chosen keys]. Only weights are required.
struct KeyWeights {
  View<float, 4> weights{};  // p_ij; 0 if the row does not see the key, or the call has no such key
  // Derivatives of the logit by q.k and by the bias, 0 where the weight is: what a gradient needs.
  View<float, 4> by_score{}, by_bias{};
};

// Computes weights of chosen keys of each row. keys: [batch, heads, queries, chosen keys], counted
// from the call's first key; any integers. Takes one dot product for each. Throws as
// attention_forward() does.
void weights_at(const AttentionInput& input, const AttentionOptions& options,
                const View<const float, 3>& lse, const View<const std::int64_t, 4>& keys,
                const KeyWeights& result);

}  // namespace isentrope
