// Attention with a length rule, and the statistics of every row.
//
//   z_ij = lambda_i q_i.k_j     p_i = softmax(z_i)     o_i = sum_j p_ij v_j
//
// Shapes: q is [batch, heads, queries, dim], k is [batch, kv_heads, keys, dim], v is [batch,
// kv_heads, keys, value_dim], and kv_heads divides heads: query head h reads key head h / (heads /
// kv_heads). Any strides; f32, bf16 or f16, all three alike, or k and v in 8 bits. Row statistics
// are f32 [batch, heads, queries], in nats.
#pragma once

#include <cstdint>

#include "isentrope/mask.h"
#include "isentrope/parallel.h"
#include "isentrope/scale_rule.h"
#include "isentrope/statistics.h"
#include "isentrope/tensor.h"
#include "isentrope/view.h"

namespace isentrope {

// Keys and values of a cache that is kept in pages: k and v are then [pages, kv_heads, page_size,
// dim], and key j of a batch lies in page block_table(batch, j / page_size) at j % page_size.
struct PagedKeys {
  // [batch, pages of a sequence]; without data: not paged.
  View<const std::int32_t, 2> block_table;
  std::int64_t keys = 0;  // of the longest sequence; shorter ones end at Mask::key_end

  explicit operator bool() const { return static_cast<bool>(block_table); }
};

struct AttentionInput {
  ConstTensor q, k, v;
  PagedKeys pages{};
  // Where k and v are codes of 8 bits, their scales: [as k, as k, as k, groups of the columns], as
  // quantize() writes them. Such keys and values are computed in f32, whatever the type of q, and
  // have no backward pass.
  View<const float, 4> k_scale{}, v_scale{};

  // Of a sequence: those of k, or of the longest sequence whose pages they are.
  [[nodiscard]] std::int64_t keys() const { return pages ? pages.keys : k.extents[2]; }
};

// In the order in which they act on a score s = q.k:
//
//   z = soft_cap tanh(lambda s / soft_cap) + bias, then the masks; sinks join the softmax at the end
//
// A rule that acts after the soft-cap (ScalePlace) multiplies the capped value.
struct AttentionOptions {
  ScaleRule rule{};
  Mask mask{};
  float soft_cap = 0;  // > 0, or 0 for none

  // [batch, heads, queries, keys], any strides, 0 included. `attn_mask` hides a key where it is
  // 0, and hidden keys do not count in n. A bias of -inf removes the key from the support but not
  // from n.
  View<const std::uint8_t, 4> attn_mask{};
  View<const float, 4> bias{};

  // [heads]: the logit of a key without value that every row with a key sees. It takes weight from
  // the output alone: the statistics are those of the real keys, and lse is without it.
  View<const float, 1> sinks{};

  // [batch, heads, queries]: the softmax scale of each row, instead of a rule.
  View<const float, 3> lambda{};

  // The share of weights that are dropped, 0 <= dropout_p < 1; the others count 1 / (1 - dropout_p)
  // times. They are dropped from the output alone: statistics are those of the weights before.
  // Which ones is a function of the seed and of batch, head, query + query_offset and key +
  // key_offset, the same in both passes, on every backend and for any threads (docs/adr/0013);
  // packed documents are one batch, and their positions those of all of them. Sinks stay.
  float dropout_p = 0;
  std::uint64_t dropout_seed = 0;

  ParallelFor parallel_for{};  // empty: the library's own threads
};

struct AttentionOutput {
  Tensor output{};             // [batch, heads, queries, value_dim], f32 or of the input's type
  RowStatistics statistics{};  // what the operator tells of each row
};

// Throws Error before anything is written when an argument does not fit, or when an array that is
// written overlaps another one in memory.
void attention_forward(const AttentionInput& input, const AttentionOptions& options,
                       const AttentionOutput& output);

// Gradients of a scalar with respect to what the forward pass returned, and the results the
// backward pass takes up again: output and lse always, and beside the gradient of a statistic what
// the list in statistics.h says it needs, entropy and variance for that of variance. Gradients
// without data count as zero; max_logit, lambda and support have none. That of max_probability is
// of the row's first largest key; where two are largest there is no derivative.
struct AttentionGradientInput {
  ConstTensor output{};
  ConstRowStatistics statistics{};
  ConstTensor d_output{};
  ConstRowStatistics d_statistics{};
};

// dq, dk and dv are f32 or of the input's type. The others are computed where they have data.
struct AttentionGradients {
  Tensor dq{}, dk{}, dv{};
  View<float, 4>
      d_bias{};  // [batch, heads, queries, keys]; strides of 0 are for the caller to sum over
  View<float, 3> d_lambda{};  // [batch, heads, queries]; of the factor before the soft-cap; without
                              // one, of lambda
  View<float, 1> d_sinks{};   // [heads]
};

// Recomputes the weights tile by tile: memory grows with queries + keys, never with their product.
// Paged keys have no backward pass.
void attention_backward(const AttentionInput& input, const AttentionOptions& options,
                        const AttentionGradientInput& gradient, const AttentionGradients& result);

}  // namespace isentrope
