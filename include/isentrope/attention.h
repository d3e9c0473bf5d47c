// Attention with a scale that may depend on the length, and the statistics of every row.
//
//   z_ij = lambda_i q_i.k_j     p_i = softmax(z_i)     o_i = sum_j p_ij v_j
//
// Shapes: q is [batch, heads, queries, dim], k is [batch, kv_heads, keys, dim], v is [batch,
// kv_heads, keys, value_dim], and kv_heads divides heads: query head h reads key head h / (heads /
// kv_heads). Strides are arbitrary. q, k and v are all f32, bf16 or f16, or k and v are codes of 8
// bits. Row statistics are f32 [batch, heads, queries], in nats.
#pragma once

#include <cstdint>

#include "isentrope/mask.h"
#include "isentrope/parallel.h"
#include "isentrope/scale_rule.h"
#include "isentrope/statistics.h"
#include "isentrope/tensor.h"
#include "isentrope/view.h"

namespace isentrope {

// Keys and values of a paged cache: k and v are then [pages, kv_heads, page_size, dim], and key j
// of a sequence is at row j % page_size of page block_table(batch, j / page_size).
struct PagedKeys {
  // [batch, pages of a sequence]; without data: not paged.
  View<const std::int32_t, 2> block_table;
  std::int64_t keys = 0;  // of the longest sequence; shorter ones end at Mask::key_end

  explicit operator bool() const { return static_cast<bool>(block_table); }
};

struct AttentionInput {
  ConstTensor q, k, v;
  PagedKeys pages{};
  // The scales of k and v if these are codes of 8 bits, as quantize() writes them. The first three
  // extents are those of k and v, the last is the number of groups of columns. Such keys and values
  // are computed in f32, whatever the type of q, and have no backward pass.
  View<const float, 4> k_scale{}, v_scale{};

  // The number of keys: that of k, or of the longest sequence if k is paged.
  [[nodiscard]] std::int64_t keys() const { return pages ? pages.keys : k.extents[2]; }
};

// Options, in the order in which they act on a score s = q.k:
//
//   z = soft_cap tanh(lambda s / soft_cap) + bias, then the masks; sinks join the softmax at the end
//
// A rule that acts after the soft-cap (ScalePlace) multiplies the capped value.
struct AttentionOptions {
  ScaleRule rule{};
  Mask mask{};
  float soft_cap = 0;  // > 0, or 0 for none

  // [batch, heads, queries, keys], with any strides, also 0. A key is hidden where `attn_mask` is
  // 0; hidden keys do not count in n. A bias of -inf removes a key from the support but not from
  // n.
  View<const std::uint8_t, 4> attn_mask{};
  View<const float, 4> bias{};

  // [heads]: the logit of an extra key without a value, which every row that has keys sees. It only
  // takes weight from the output: the statistics, lse among them, are those of the real keys.
  View<const float, 1> sinks{};

  // [batch, heads, queries]: the softmax scale of each row, instead of a rule.
  View<const float, 3> lambda{};

  // The share of weights to drop, 0 <= dropout_p < 1; the rest are multiplied by 1 / (1 -
  // dropout_p). Only the output is affected: statistics are those of the weights before dropout.
  // The seed, batch, head, query + query_offset and key + key_offset decide whether a weight is
  // dropped. They do so alike in both passes, on every backend and for any threads (docs/adr/0013).
  // Packed documents are one batch, with positions in the whole of it. Sinks are never dropped.
  float dropout_p = 0;
  std::uint64_t dropout_seed = 0;

  ParallelFor parallel_for{};  // empty: the library's own threads
};

struct AttentionOutput {
  Tensor output{};             // [batch, heads, queries, value_dim], f32 or of the input's type
  RowStatistics statistics{};  // of each row; those without data are not computed
};

// Throws Error before anything is written if an argument is invalid, or if an array that is written
// overlaps another one in memory.
void attention_forward(const AttentionInput& input, const AttentionOptions& options,
                       const AttentionOutput& output);

// The gradients of a scalar with respect to the results of the forward pass, and those results that
// the backward pass needs: output and lse always, and for the gradient of a statistic the results
// listed in statistics.h, such as entropy and variance for that of variance. Gradients without data
// are zero; max_logit, lambda and support have none. That of max_probability goes to the first
// largest key of the row, although there is no derivative where two keys are largest.
struct AttentionGradientInput {
  ConstTensor output{};
  ConstRowStatistics statistics{};
  ConstTensor d_output{};
  ConstRowStatistics d_statistics{};
};

// dq, dk and dv are f32 or of the input's type. The other gradients are computed if they have data.
struct AttentionGradients {
  Tensor dq{}, dk{}, dv{};
  View<float, 4>
      d_bias{};  // [batch, heads, queries, keys]; strides of 0 are for the caller to sum over
  View<float, 3> d_lambda{};  // [batch, heads, queries]; of the factor before the soft-cap; without
                              // one, of lambda
  View<float, 1> d_sinks{};   // [heads]
};

// Recomputes the weights tile by tile: memory grows with queries + keys, not with their product.
// There is no backward pass for paged keys.
void attention_backward(const AttentionInput& input, const AttentionOptions& options,
                        const AttentionGradientInput& gradient, const AttentionGradients& result);

}  // namespace isentrope
