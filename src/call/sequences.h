// Sequences of a paged cache, each as a call of its own, because queries and keys differ in number.
#pragma once

#include <cstdint>
#include <type_traits>

#include "isentrope/attention.h"
#include "src/call/mask_parts.h"

namespace isentrope {

// The arguments of attention_forward() for one sequence.
struct SequenceCall {
  AttentionInput input;
  AttentionOptions options;
  AttentionOutput output;
};

// Queries of one batch of a tensor.
struct SequenceQueries {
  std::int64_t batch, begin, end;
  [[nodiscard]] std::int64_t size() const { return end - begin; }
};

[[nodiscard]] inline SequenceQueries queries_of(const AttentionInput& in, std::int64_t sequence) {
  const auto& starts = in.pages.cu_seq_q;
  if (!starts) return {sequence, 0, in.q.extents[2]};
  return {0, starts(sequence), starts(sequence + 1)};
}

// Returns the number of keys of a sequence.
[[nodiscard]] inline std::int64_t keys_of(const AttentionInput& in, std::int64_t sequence) {
  return in.pages.seqused_k ? in.pages.seqused_k(sequence) : in.keys();
}

// Returns some queries of an array [batch, heads, queries, ...].
template <typename T, std::size_t Rank>
View<T, Rank> part_of(View<T, Rank> view, const SequenceQueries& queries) {
  static_assert(Rank >= 3);
  if (!view) return view;
  view.data += queries.batch * view.strides[0] + queries.begin * view.strides[2];
  view.extents[0] = 1;
  view.extents[2] = queries.size();
  return view;
}
template <typename Any>
  requires std::is_same_v<Any, Tensor> || std::is_same_v<Any, ConstTensor>
Any part_of(Any tensor, const SequenceQueries& queries) {
  using Byte = std::conditional_t<std::is_same_v<Any, Tensor>, char, const char>;
  const std::int64_t offset = queries.batch * tensor.strides[0] + queries.begin * tensor.strides[2];
  if (tensor) tensor.data = static_cast<Byte*>(tensor.data) + offset * size_of(tensor.type);
  tensor.extents[0] = 1;
  tensor.extents[2] = queries.size();
  return tensor;
}

// Returns one sequence's element of a list, or row of a table.
template <typename T, std::size_t Rank>
View<T, Rank> entry_of(View<T, Rank> list, std::int64_t sequence) {
  if (!list) return list;
  list.data += sequence * list.strides[0];
  list.extents[0] = 1;
  return list;
}

// Returns the call of one sequence: queries of a batch of 1, and its own number of paged keys.
[[nodiscard]] inline SequenceCall sequence_of(const AttentionInput& in,
                                              const AttentionOptions& options,
                                              const AttentionOutput& output,
                                              std::int64_t sequence) {
  const SequenceQueries queries = queries_of(in, sequence);
  SequenceCall call{in, options, {part_of(output.output, queries)}};
  call.input.q = part_of(in.q, queries);
  call.input.pages = {entry_of(in.pages.block_table, sequence), keys_of(in, sequence)};
  call.options.attn_mask = part_of(options.attn_mask, queries);
  call.options.bias = part_of(options.bias, queries);
  call.options.attn_mask.extents[3] = call.options.bias.extents[3] = keys_of(in, sequence);
  call.options.lambda = part_of(options.lambda, queries);
  for (const MaskList& list : kMaskLists) {
    if (list.by_batch)
      call.options.mask.*list.member = entry_of(options.mask.*list.member, sequence);
  }
  for_each_statistic(
      [&](const Statistic&, const auto& whole, auto& part) { part = part_of(whole, queries); },
      output.statistics, call.output.statistics);
  call.output.received = entry_of(output.received, sequence);
  call.output.received.extents[2] = keys_of(in, sequence);
  return call;
}

}  // namespace isentrope
