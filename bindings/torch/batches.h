// One batch of a call as a separate call, because sequences of a decode step differ in length.
#pragma once

#include <cstdint>
#include <type_traits>

#include "isentrope/attention.h"
#include "src/call/mask_parts.h"

namespace isentrope::stable {

template <typename T, std::size_t Rank>
View<T, Rank> batch_of(View<T, Rank> view, std::int64_t batch) {
  if (!view) return view;
  view.data += batch * view.strides[0];
  view.extents[0] = 1;
  return view;
}

template <typename Any>
Any batch_of_numbers(const Any& tensor, std::int64_t batch) {
  Any part = tensor;
  using Byte = std::conditional_t<std::is_same_v<Any, Tensor>, char, const char>;
  if (part.data)
    part.data = static_cast<Byte*>(part.data) + batch * part.strides[0] * size_of(part.type);
  part.extents[0] = 1;
  return part;
}

inline AttentionOutput batch_of(const AttentionOutput& whole, std::int64_t batch) {
  AttentionOutput result{batch_of_numbers(whole.output, batch)};
  for_each_statistic(
      [&](const Statistic&, const auto& view, auto& to) { to = batch_of(view, batch); },
      whole.statistics, result.statistics);
  return result;
}

inline AttentionOptions batch_of(const AttentionOptions& whole, std::int64_t batch) {
  AttentionOptions result = whole;
  result.attn_mask = batch_of(whole.attn_mask, batch);
  result.bias = batch_of_numbers(whole.bias, batch);
  result.lambda = batch_of(whole.lambda, batch);
  for (const MaskList& part : kMaskLists) {
    if (part.by_batch) result.mask.*part.member = batch_of(whole.mask.*part.member, batch);
  }
  return result;
}

inline AttentionInput batch_of(const AttentionInput& whole, std::int64_t batch, std::int64_t keys) {
  AttentionInput result = whole;
  result.q = batch_of_numbers(whole.q, batch);
  result.pages = {batch_of(whole.pages.block_table, batch), keys};
  return result;
}

}  // namespace isentrope::stable
