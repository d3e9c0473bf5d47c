// Dropout of the weights of a tile, after the rows' states have summed them.

#if defined(ISENTROPE_DROPOUT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPE_DROPOUT_INL_H_
#undef ISENTROPE_DROPOUT_INL_H_
#else
#define ISENTROPE_DROPOUT_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"
#include "src/call/dropout.h"
#include "src/cpu/block_sizes.h"
#include "src/cpu/steps/philox-inl.h"
#include "src/cpu/steps/row_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentrope::HWY_NAMESPACE {

// Drops weights[key][row] of a transposed tile, and the same weights of a second tile if there is
// one. A vector of rows draws four keys at once.
HWY_INLINE void drop_weights(const RowTile& tile, float* weights, float* second = nullptr) {
  const Floats d;
  const Words dw;
  const Dropout& dropout = tile.call.dropout;
  HWY_ALIGN std::uint32_t queries[kStateRows] = {}, heads[kStateRows] = {};
  const std::int64_t group = tile.call.input.q.extents[1] / tile.call.plan.kv_heads;
  for (std::size_t r = 0; r < tile.rows; ++r) {
    queries[r] =
        static_cast<std::uint32_t>(query_of(tile.item, tile.row + r) + dropout.query_offset);
    heads[r] = static_cast<std::uint32_t>(head_of(tile.item, group, tile.row + r));
  }
  const std::int64_t first =
      tile.block + static_cast<std::int64_t>(tile.first) + dropout.key_offset;
  const std::int64_t end = first + static_cast<std::int64_t>(tile.keys());
  const auto batch = hn::Set(dw, static_cast<std::uint32_t>(tile.item.batch));
  const auto least = hn::Set(dw, dropout.least);
  for (std::int64_t group_begin = first / 4 * 4; group_begin < end; group_begin += 4) {
    for (std::size_t r = 0; r < tile.rows; r += hn::Lanes(d)) {
      hn::Vec<Words> words[4] = {hn::Set(dw, static_cast<std::uint32_t>(group_begin / 4)),
                                 hn::Load(dw, queries + r), hn::Load(dw, heads + r), batch};
      philox(dropout.seed, words[0], words[1], words[2], words[3]);
      // A block may begin or end within a group of four keys.
      for (std::int64_t key = std::max(first, group_begin); key < std::min(end, group_begin + 4);
           ++key) {
        const std::size_t at = static_cast<std::size_t>(key - first) * panel_width() + r;
        const auto is_dropped = hn::RebindMask(d, hn::Lt(words[key - group_begin], least));
        for (float* numbers : {weights, second}) {
          if (!numbers) continue;
          hn::Store(hn::IfThenZeroElse(is_dropped, hn::Load(d, numbers + at)), d, numbers + at);
        }
      }
    }
  }
}

// A row of the call's weights.
struct WeightRow {
  std::int64_t batch, head, query;
};

// Sets factors[j] to 0 if weight j is dropped, else to `factor`, for keys from first_key on. Covers
// whole vectors, at most kBlockKeys. Each lane of a vector draws four keys.
HWY_INLINE void keep_factors(const Dropout& dropout, const WeightRow& row, std::int64_t first_key,
                             std::size_t columns, float factor, float* HWY_RESTRICT factors) {
  const Floats d;
  const Words dw;
  const std::size_t lanes = hn::Lanes(d);
  HWY_ALIGN std::uint32_t bits[kBlockKeys + 8 * hn::MaxLanes(Floats())];
  const std::int64_t first = first_key + dropout.key_offset;
  const auto before = static_cast<std::size_t>(first % 4);  // keys before first_key
  for (std::size_t j = 0; j < before + columns; j += 4 * lanes) {
    const auto first_draw =
        static_cast<std::uint32_t>(first / 4 + static_cast<std::int64_t>(j / 4));
    auto a = hn::Iota(dw, first_draw),
         b = hn::Set(dw, static_cast<std::uint32_t>(row.query + dropout.query_offset));
    auto c = hn::Set(dw, static_cast<std::uint32_t>(row.head));
    auto e = hn::Set(dw, static_cast<std::uint32_t>(row.batch));
    philox(dropout.seed, a, b, c, e);
    hn::StoreInterleaved4(a, b, c, e, dw, bits + j);
  }
  const auto least = hn::Set(dw, dropout.least);
  for (std::size_t j = 0; j < columns; j += lanes) {
    const auto is_dropped = hn::RebindMask(d, hn::Lt(hn::LoadU(dw, bits + before + j), least));
    hn::Store(hn::IfThenZeroElse(is_dropped, hn::Set(d, factor)), d, factors + j);
  }
}

// Computes values[j] *= factors[j] over whole vectors. A dropped NaN stays NaN.
HWY_INLINE void multiply_by(const float* HWY_RESTRICT factors, std::size_t columns,
                            float* HWY_RESTRICT values) {
  const Floats d;
  for (std::size_t j = 0; j < columns; j += hn::Lanes(d))
    hn::Store(hn::Mul(hn::Load(d, values + j), hn::Load(d, factors + j)), d, values + j);
}

// Drops weights of row r of a tile with contiguous rows, from key `first` of the block on.
HWY_INLINE void drop_weights_of_row(const RowTile& tile, std::size_t r, std::size_t first,
                                    std::size_t columns, float* weights) {
  HWY_ALIGN float factors[kBlockKeys];
  const std::int64_t group = tile.call.input.q.extents[1] / tile.call.plan.kv_heads;
  const WeightRow row{tile.item.batch, head_of(tile.item, group, tile.row + r),
                      query_of(tile.item, tile.row + r)};
  keep_factors(tile.call.dropout, row, tile.block + static_cast<std::int64_t>(first), columns, 1,
               factors);
  multiply_by(factors, columns, weights);
}

}  // namespace isentrope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
