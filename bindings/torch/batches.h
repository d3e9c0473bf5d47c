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
  Any one = tensor;
  using Byte = std::conditional_t<std::is_same_v<Any, Tensor>, char, const char>;
  if (one.data)
    one.data = static_cast<Byte*>(one.data) + batch * one.strides[0] * size_of(one.type);
  one.extents[0] = 1;
  return one;
}

inline AttentionOutput batch_of(const AttentionOutput& all, std::int64_t batch) {
  AttentionOutput one{batch_of_numbers(all.output, batch)};
  for_each_statistic(
      [&](const Statistic&, const auto& view, auto& its) { its = batch_of(view, batch); },
      all.statistics, one.statistics);
  return one;
}

inline AttentionOptions batch_of(const AttentionOptions& all, std::int64_t batch) {
  AttentionOptions one = all;
  one.attn_mask = batch_of(all.attn_mask, batch);
  one.bias = batch_of(all.bias, batch);
  one.lambda = batch_of(all.lambda, batch);
  for (const MaskList& part : kMaskLists) {
    if (part.by_batch) one.mask.*part.member = batch_of(all.mask.*part.member, batch);
  }
  return one;
}

inline AttentionInput batch_of(const AttentionInput& all, std::int64_t batch, std::int64_t keys) {
  AttentionInput one = all;
  one.q = batch_of_numbers(all.q, batch);
  one.pages = {batch_of(all.pages.block_table, batch), keys};
  return one;
}

}  // namespace isentrope::stable
