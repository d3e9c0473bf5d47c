// Writes new keys and values into the pages of a cache.
#pragma once

#include <cstdint>

#include "isentrope/parallel.h"
#include "isentrope/tensor.h"
#include "isentrope/view.h"

namespace isentrope {

// Copies the keys and values of new tokens into a paged cache, token t to slot_mapping(t).
//
//   k, v              [1, kv_heads, tokens, dim | value_dim], any strides
//   k_cache, v_cache  [pages, kv_heads, page_size, dim | value_dim], all of one type: f32, bf16, f16
//   slot_mapping      [tokens]: page * page_size + row of the page, as in vLLM; negative: not written
//
// The last of several tokens with one slot remains. Throws Error before anything is written if an
// argument is invalid, a slot is beyond the cache, or a cache overlaps another array.
void write_cache(const ConstTensor& k, const ConstTensor& v, const Tensor& k_cache,
                 const Tensor& v_cache, const View<const std::int64_t, 1>& slot_mapping,
                 const ParallelFor& parallel_for = run_on_pool);

}  // namespace isentrope
