// TileStages: row tiles of a block on their way through products that run beside vectors.
//
// Per-target header: compiled once for every instruction set.

#if defined(ISENTROPE_TILE_STAGES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPE_TILE_STAGES_INL_H_
#undef ISENTROPE_TILE_STAGES_INL_H_
#else
#define ISENTROPE_TILE_STAGES_INL_H_
#endif

#include <cstddef>
#include <optional>

#include "hwy/highway.h"
#include "src/cpu/block_sizes.h"
#include "src/cpu/scratch.h"
#include "src/cpu/steps/row_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentrope::HWY_NAMESPACE {

// Three row tiles follow each other: scores of the first are asked for, those of the second become
// weights, and value sums of the third are asked for.
class TileStages {
 public:
  struct Stage {
    Stage(const RowTile& of, float* memory)
        : ranges(of.ranges),
          tile{of.call, of.item, of.block, of.row, of.rows, ranges, of.own_keys, of.step},
          weights(memory) {}
    Stage(const Stage&) = delete;  // tile refers to ranges
    Stage& operator=(const Stage&) = delete;

    const RowTile::Ranges ranges;
    const RowTile tile;
    float* const weights;
    HWY_ALIGN float rescale[kStateRows];
    bool empty = false;  // there are no value sums yet
  };
  static constexpr std::size_t kCount = 3;

  // What the task's Scratch holds, where the stages are used.
  Scratch::Array weights(bool used) { return {weights_, used ? kCount * kSize : 0}; }

  // Each a stage further, and `next`, null for none, to the first.
  void shift(const RowTile* next) {
    first_ = (first_ + kCount - 1) % kCount;
    stages_[first_].reset();
    if (next) stages_[first_].emplace(*next, weights_.at(first_ * kSize, kSize));
  }

  // Null where no row tile is there.
  [[nodiscard]] Stage* scored() { return at(0); }
  [[nodiscard]] Stage* weighed() { return at(1); }
  [[nodiscard]] Stage* summed() { return at(2); }

 private:
  static constexpr std::size_t kSize = kBlockKeys * kPanelRows;
  Stage* at(std::size_t stage) {
    std::optional<Stage>& found = stages_[(first_ + stage) % kCount];
    return found ? &*found : nullptr;
  }

  std::optional<Stage> stages_[kCount];
  std::size_t first_ = 0;
  Buffer<float> weights_;
};

}  // namespace isentrope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
