// Attention with a scale that may depend on the length, and the statistics of every row.
//
//   z_ij = lambda_i q_i.k_j     p_i = softmax(z_i)     o_i = sum_j p_ij v_j
//
// Shapes and types:
//
//   q        [batch, heads, queries, dim]
//   k        [batch, kv_heads, keys, dim]          dim and value_dim are at least 1
//   v        [batch, kv_heads, keys, value_dim]    kv_heads divides heads
//   output   [batch, heads, queries, value_dim]
//
// Query head h reads key head h / (heads / kv_heads). Strides are arbitrary. k and v are f32, bf16,
// f16 or 8-bit codes. q is of their type, f32, or with codes any of the three. Products of bf16
// round an f32 q to bf16 as they pack it; others take it as it is. Row statistics are f32
// [batch, heads, queries], in nats.
//
// A row that sees no key has output 0 and no gradient. NaN in a key or value makes the rows that
// see it NaN and leaves all other rows as they were. docs/semantics.md lists every edge case.
#pragma once

#include <cstdint>

#include "isentrope/mask.h"
#include "isentrope/parallel.h"
#include "isentrope/scale_rule.h"
#include "isentrope/statistics.h"
#include "isentrope/tensor.h"
#include "isentrope/view.h"

namespace isentrope {

// Page table of a paged cache (vLLM, Kwon et al. 2023). k and v are then [pages, kv_heads,
// page_size, dim]; key j is at row j % page_size of page block_table(batch, j / page_size).
struct PagedKeys {
  // [batch, pages of a sequence], each at least 0 and below pages; without data: not paged.
  View<const std::int32_t, 2> block_table;
  std::int64_t keys = 0;  // of the longest sequence; shorter ones end at Mask::key_end

  // [sequences]: the number of keys of each sequence, 0 ... keys. Each sequence is then a call of
  // its own: its last query is aligned with its last key, and its bits depend on no other sequence.
  // Without data: all have `keys`.
  View<const std::int64_t, 1> seqused_k{};

  // [sequences + 1]: the beginnings of packed queries, 0, ..., queries, which never decrease. q,
  // output and statistics have a batch of 1, and sequence s has queries cu_seq_q(s) ...
  // cu_seq_q(s + 1) - 1 of them: decode steps, chunks of a prompt and whole prompts in one call.
  // The mask's lists [batch] are [sequences]; attn_mask and bias are [1, heads, queries, keys] and
  // count keys within each query's sequence. Without data: sequence s is batch s of q.
  View<const std::int64_t, 1> cu_seq_q{};

  explicit operator bool() const { return static_cast<bool>(block_table); }
  // Returns whether sequences may differ in their queries or keys. Dropout, documents and
  // sequence_keys are errors then.
  [[nodiscard]] bool has_sequences() const { return seqused_k || cu_seq_q; }
};

struct AttentionInput {
  ConstTensor q, k, v;
  PagedKeys pages{};
  // Scales of k and v if these are 8-bit codes, as quantize() writes both. The first three extents
  // are those of k and v, the last is the number of groups of columns. Such keys and values are
  // computed in f32, whatever the type of q, and have no backward pass.
  View<const float, 4> k_scale{}, v_scale{};

  // Returns the number of sequences: that of the mask's lists, and of the page table.
  [[nodiscard]] std::int64_t sequences() const {
    return pages.cu_seq_q ? pages.block_table.extents[0] : q.extents[0];
  }
  // Returns the number of keys: that of k, or of the longest sequence if k is paged.
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
  float soft_cap = 0;  // finite and > 0 (Gemma 2), or 0 for none

  // Boolean mask and additive bias, [batch, heads, queries, keys], with any strides, also 0. A key
  // is hidden where `attn_mask` is 0; hidden keys do not count in n. The bias is f32, bf16 or f16.
  // A bias of -inf removes a key from the support, and from n if `bias_hides`.
  View<const std::uint8_t, 4> attn_mask{};
  ConstTensor bias{};
  bool bias_hides = false;

  // Slopes of ALiBi, [heads]: factors of the bias, whose -inf stays. Only with a bias.
  View<const float, 1> bias_slopes{};

  // Attention sinks, [heads] (gpt-oss): the logit of an extra key without a value, which every row
  // with keys sees. A sink only takes weight from the output: the statistics, lse among them, are
  // those of the real keys.
  View<const float, 1> sinks{};

  // Softmax scale of each row, [batch, heads, queries], instead of a rule.
  View<const float, 3> lambda{};

  // Share of weights to drop, 0 <= dropout_p < 1; the rest are multiplied by 1 / (1 - dropout_p).
  // Only the output is affected: statistics are those of the weights before dropout.
  // The seed, batch, head, query + query_offset and key + key_offset decide whether a weight is
  // dropped. They do so alike in both passes, on every backend and for any threads (docs/adr/0013).
  // Packed documents are one batch, with positions in the whole of it. Sinks are never dropped.
  float dropout_p = 0;
  std::uint64_t dropout_seed = 0;

  ParallelFor parallel_for{};  // empty: the library's own threads
};

// Arrays that the forward pass writes. None may overlap another array or itself.
struct AttentionOutput {
  Tensor output{};             // [batch, heads, queries, value_dim], f32 or of q's type
  RowStatistics statistics{};  // those without data are not computed
  // Weight that each key receives from the rows of each query head, as received() of
  // key_statistics.h computes it: f32 [batch, heads, keys]. If sequences differ, [sequences, heads,
  // keys], with 0 past the keys of a sequence. Decode steps, which memory limits, sum it from
  // logits that they keep, instead of reading the keys again; this takes memory for rows times
  // keys. Without data: not computed.
  View<float, 3> received{};
};

// Computes the output and the requested statistics.
//
// Throws Error before anything is written if an argument is invalid, or if an array that is written
// overlaps another one in memory. Throws std::bad_alloc without memory; results are then undefined.
void attention_forward(const AttentionInput& input, const AttentionOptions& options,
                       const AttentionOutput& output);

// Upstream gradients, and the results of the forward pass that the backward pass needs.
//
// Output and lse are always needed. The gradient of a statistic needs the results that statistics.h
// lists: that of variance needs entropy and variance. Upstream gradients without data are zero;
// max_logit, lambda and support have none. If several keys of a row are largest, max_probability
// has no derivative, and its gradient goes to the first of them.
struct AttentionGradientInput {
  ConstTensor output{};
  ConstRowStatistics statistics{};
  ConstTensor d_output{};
  ConstRowStatistics d_statistics{};
};

// Arrays that the backward pass writes, with the shapes of their inputs. dq, dk and dv are
// required, f32 or of their input's type. The other gradients are computed if they have data.
struct AttentionGradients {
  Tensor dq{}, dk{}, dv{};
  View<float, 4>
      d_bias{};  // [batch, heads, queries, keys]; the caller sums it over axes that are broadcast
  // [batch, heads, queries]: with respect to the factor before the soft-cap, or else to lambda.
  View<float, 3> d_lambda{};
  View<float, 1> d_sinks{};  // [heads]
};

// Computes the gradients of attention_forward() under the same input and options.
//
// Weights are recomputed tile by tile: memory grows with queries + keys, not with their product.
// There is no backward pass for paged keys and 8-bit codes. Throws as attention_forward() does.
void attention_backward(const AttentionInput& input, const AttentionOptions& options,
                        const AttentionGradientInput& gradient, const AttentionGradients& result);

}  // namespace isentrope
