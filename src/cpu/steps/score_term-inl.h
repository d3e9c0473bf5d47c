// ScoreTerm and ValueTerm: one product of a pass, in the arithmetic that its numbers permit.

#if defined(ISENTROPE_SCORE_TERM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPE_SCORE_TERM_INL_H_
#undef ISENTROPE_SCORE_TERM_INL_H_
#else
#define ISENTROPE_SCORE_TERM_INL_H_
#endif

#include <array>
#include <cstddef>

#include "hwy/highway.h"
#include "src/cpu/block_sizes.h"
#include "src/cpu/kernels.h"
#include "src/cpu/product/f32_arithmetic-inl.h"
#include "src/cpu/product/pairs_arithmetic-inl.h"
#include "src/cpu/scratch.h"
#include "src/cpu/steps/pv_tile-inl.h"
#include "src/cpu/steps/qk_tile-inl.h"
#include "src/cpu/steps/row_tile_state-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentrope::HWY_NAMESPACE {

// Lengths of the blocks of a call, in whole panels and tiles of this target. Query heads of one key
// head share its keys, so a block holds the rows of all of them.
struct BlockSizes {
  BlockSizes(const Call& call, DType type)
      : value_dim(static_cast<std::size_t>(call.input.v.extents[3])),
        value_columns(round_up(value_dim, panel_width())),
        rows(round_up(static_cast<std::size_t>(call.input.q.extents[1] / call.plan.kv_heads *
                                               call.plan.block_rows),
                      kStateRows)),
        pairs(type),
        key_step(pairs.serves(call.input.v) ? pairs.key_step() : 4) {}
  std::size_t value_dim, value_columns;
  std::size_t rows;  // of the longest query block, in whole tiles
  Pairs pairs;
  std::size_t key_step;  // of row tiles
};

// Scores of the queries of an item with the keys of a block. A term without queries or keys is 0.
class ScoreTerm {
 public:
  ScoreTerm(const Pairs& pairs, const ConstTensor& queries, const ConstTensor& keys)
      : ScoreTerm(pairs, queries, keys, pairs.serves(queries) && pairs.serves(keys)) {}
  ScoreTerm(const Pairs& pairs, const ConstTensor& queries, const ConstTensor& keys,
            bool serves_pairs)
      : arithmetic_(pairs),
        is_given_(queries && keys),
        serves_pairs_(is_given_ && serves_pairs),
        f32_({}, static_cast<std::size_t>(queries.extents[3])),
        pairs_(pairs, static_cast<std::size_t>(queries.extents[3])) {}

  // Arrays for the task's Scratch, for `rows` queries.
  std::array<Scratch::Array, 4> arrays(std::size_t rows) {
    return {f32_.queries(is_given_ ? rows : 0), f32_.key_copies(is_given_ ? kBlockKeys : 0),
            pairs_.queries(serves_pairs_ ? rows : 0),
            pairs_.key_copies(serves_pairs_ ? kBlockKeys : 0)};
  }

  explicit operator bool() const { return is_given_; }
  [[nodiscard]] bool uses_pairs() const { return serves_pairs_; }

  // Takes the queries of an item, which must stay, and their factors.
  void take(const Operand& queries, const float* factors) noexcept {
    if (!is_given_) return;
    from_ = &queries;
    factors_ = factors;
    pairs_fit_ = serves_pairs_ && arithmetic_.fits(queries);
    f32_packed_ = false;
    if (pairs_fit_) pairs_.pack_queries(queries, factors);
  }
  // Whether the queries of the item are packed: at once for pairs, for f32 before the first block.
  [[nodiscard]] bool has_packed() const { return pairs_fit_ || f32_packed_; }
  // Takes the keys of a block. A number that pairs do not hold sends only its own block to f32, so
  // results do not depend on other blocks.
  void place(const Operand& keys) noexcept {
    if (!is_given_) return;
    in_use_ = &pairs_;
    if (!(pairs_fit_ && arithmetic_.fits(keys))) {
      if (!f32_packed_) f32_.pack_queries(*from_, factors_);
      f32_packed_ = true;
      in_use_ = &f32_;
    }
    in_use_->place_keys(keys);
  }
  void run(const RowTile& tile, float* scores) const noexcept {
    in_use_->run(tile, factors_ + tile.row, scores);
  }

 private:
  const Pairs arithmetic_;
  const bool is_given_, serves_pairs_;
  QkTileOf<F32> f32_;
  QkTileOf<Pairs> pairs_;
  const Operand* from_ = nullptr;
  const float* factors_ = nullptr;
  bool pairs_fit_ = false, f32_packed_ = false;
  QkTile* in_use_ = nullptr;
};

// Sums of weights times values. Their arithmetic is chosen once, because non-finite values are
// added afterwards.
class ValueTerm {
 public:
  ValueTerm(const Pairs& pairs, const ConstTensor& values, bool is_needed)
      : is_given_(values && is_needed),
        uses_pairs_(is_given_ && pairs.serves(values)),
        f32_(static_cast<std::size_t>(values.extents[3])),
        pairs_(pairs, static_cast<std::size_t>(values.extents[3])) {}

  std::array<Scratch::Array, 2> arrays() {
    return {f32_.value_copies(is_given_ && !uses_pairs_ ? kBlockKeys : 0),
            pairs_.value_copies(uses_pairs_ ? kBlockKeys : 0)};
  }

  explicit operator bool() const { return is_given_; }
  [[nodiscard]] bool uses_pairs() const { return uses_pairs_; }

  void place(const Operand& values) noexcept {
    if (is_given_) tile().place_values(values);
  }
  void run(const RowTile& tile_of_rows, float* weights, const ValueSums& to) noexcept {
    tile().run(tile_of_rows, weights, to);
  }

 private:
  PvTile& tile() { return uses_pairs_ ? static_cast<PvTile&>(pairs_) : f32_; }

  const bool is_given_, uses_pairs_;
  PvTileOf<F32> f32_;
  PvTileOf<Pairs> pairs_;
};

}  // namespace isentrope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
