
#if defined(ISENTROPE_QUERY_BLOCK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPE_QUERY_BLOCK_INL_H_
#undef ISENTROPE_QUERY_BLOCK_INL_H_
#else
#define ISENTROPE_QUERY_BLOCK_INL_H_
#endif

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"
#include "src/call/mask_parts.h"
#include "src/cpu/kernels.h"
#include "src/cpu/plan.h"
#include "src/cpu/product/operand.h"
#include "src/cpu/product/pack-inl.h"
#include "src/cpu/row_ranges.h"
#include "src/cpu/steps/logits-inl.h"
#include "src/cpu/steps/row_tile_state-inl.h"
#include "src/cpu/steps/tile_ranges.h"

HWY_BEFORE_NAMESPACE();
namespace isentrope::HWY_NAMESPACE {

// The rows of a query block: all query heads of the group, one after the other, share keys.
class QueryBlock {
 public:
  // masks: a summary that narrows the rows' keys; null if the caller reads the masks itself.
  QueryBlock(const Call& call, bool asks_distance, const MaskSummary* masks = nullptr)
      : call_(call),
        masks_(masks != nullptr && *masks ? masks : nullptr),
        asks_distance_(asks_distance),
        group_(call.input.q.extents[1] / call.plan.kv_heads),
        queries_(call.input.q),
        next_queries_(call.input.q) {}

  // Arrays for `rows` rows, and for those of the next item if it is to be fetched. lambda and
  // own_keys also cover the lanes past the last row.
  std::array<Scratch::Array, 8> arrays(std::size_t rows, std::size_t next_rows = 0) {
    const auto [pointers, scales, copy] = queries_.arrays(rows);
    return {pointers,
            scales,
            copy,
            next_queries_.pointers(next_rows),
            {lambda_, rows},
            {ranges_, rows},
            {mask_rows_, masks_ ? rows : 0},
            {own_keys_, asks_distance_ ? rows : 0}};
  }

  void list(const WorkItem& item) noexcept {
    rows_ = static_cast<std::size_t>(group_ * (item.end - item.begin));
    seen_ = list_row_ranges(call_.options.mask, item, group_, call_.input.q.extents[2],
                            call_.plan.keys, ranges_.at(0, rows_));
    if (masks_) apply_masks(item);
    if (asks_distance_) list_own_keys(item);
    list_rows(item, queries_);
    queries_.resolve();
    // lambda is gathered here, because a row tile may span several heads with different scales.
    std::size_t row = 0;
    for (std::int64_t member = 0; member < group_; ++member) {
      const float* scale = call_.scale.of(item.batch, item.kv_head * group_ + member).before_cap;
      for (std::int64_t query = item.begin; query < item.end; ++query)
        lambda_[row++] = scale_log2(scale[query]);
    }
    // Lanes past the last row compute too: a lambda of 0 keeps them finite, and nobody reads them.
    std::fill(lambda_.data() + row, lambda_.data() + lambda_.size(), 0.0f);
  }

  // Lists the same rows of another tensor, in the same order.
  void list_rows(const WorkItem& item, Operand& to) const {
    to.clear();
    for (std::int64_t member = 0; member < group_; ++member)
      to.add(item.batch, item.kv_head * group_ + member, item.begin, item.end);
  }

  // Prefetches the next item's queries.
  void fetch_next(const WorkItem& item) noexcept {
    list_rows(item, next_queries_);
    for (std::size_t row = 0; row < next_queries_.count(); ++row) prefetch_row(next_queries_, row);
  }

  [[nodiscard]] std::size_t rows() const { return rows_; }
  [[nodiscard]] const Operand& queries() const { return queries_; }
  [[nodiscard]] const float* lambda() const { return lambda_.data(); }  // one for each row, in log2
  [[nodiscard]] KeyRange seen() const { return seen_; }                 // by any row
  [[nodiscard]] KeyRange range(std::size_t row) const { return ranges_[row]; }
  // Returns the range of a row, or an empty one if it sees none of keys begin ... end - 1.
  [[nodiscard]] KeyRange range_in(std::size_t row, std::int64_t begin, std::int64_t end) const {
    if (!masks_) return ranges_[row];
    const KeyRange range = ranges_[row].within(begin, end);
    const bool sees = range.size() > 0 && masks_of(row, range.begin, range.end) != KeysSeen::none;
    return sees ? ranges_[row] : KeyRange{};
  }
  // Returns whether a row sees one of these keys. Only dilations and masks skip blocks of the
  // union.
  [[nodiscard]] bool any_sees(std::int64_t begin, std::int64_t end) const {
    if (call_.options.mask.dilation <= 1 && !masks_) return true;
    for (std::size_t row = 0; row < rows_; ++row)
      if (range_in(row, begin, end).within(begin, end).size() > 0) return true;
    return false;
  }
  // Returns what boolean mask and bias do to a tile's keys, which count from `block`.
  [[nodiscard]] KeysSeen masks_of_tile(std::size_t row, std::size_t rows, std::int64_t block,
                                       const TileRanges<kStateRows>& ranges) const {
    KeysSeen state = KeysSeen::all;
    for (std::size_t r = 0; r < rows && masks_; ++r) {
      if (ranges.begin[r] == ranges.end[r]) continue;
      state = join(state, masks_of(row + r, block + static_cast<std::int64_t>(ranges.begin[r]),
                                   block + static_cast<std::int64_t>(ranges.end[r])));
    }
    return state;
  }
  // Returns the keys at the positions of rows from `row` on; null unless distances are needed.
  [[nodiscard]] const double* own_keys_from(std::size_t row) const {
    return asks_distance_ ? own_keys_.data() + row : nullptr;
  }

 private:
  [[nodiscard]] KeysSeen masks_of(std::size_t row, std::int64_t first, std::int64_t last) const {
    return masks_->state(mask_rows_[row], first, last);
  }

  // Narrows the ranges to the keys that boolean mask and bias leave, which may depend on the head.
  void apply_masks(const WorkItem& item) {
    seen_ = {};
    std::size_t row = 0;
    for (std::int64_t member = 0; member < group_; ++member) {
      for (std::int64_t query = item.begin; query < item.end; ++query, ++row) {
        mask_rows_[row] = masks_->row(item.batch, item.kv_head * group_ + member, query);
        const KeyRange keys = masks_->keys(mask_rows_[row]);
        ranges_[row] = ranges_[row].within(keys.begin, keys.end);
        extend(seen_, ranges_[row]);
      }
    }
  }

  // Masks depend on batch and query, not on the head.
  void list_own_keys(const WorkItem& item) {
    const auto of_head = static_cast<std::size_t>(item.end - item.begin);
    isentrope::list_own_keys(call_.options.mask, item.batch, item.begin, item.end,
                             call_.input.q.extents[2], call_.plan.keys, own_keys_.data());
    for (std::size_t row = of_head; row < rows_; ++row) own_keys_[row] = own_keys_[row - of_head];
    std::fill(own_keys_.data() + rows_, own_keys_.data() + own_keys_.size(), 0.0);
  }

  const Call& call_;
  const MaskSummary* const masks_;
  const bool asks_distance_;
  const std::int64_t group_;
  Operand queries_, next_queries_;
  Buffer<float> lambda_;
  Buffer<KeyRange> ranges_;
  Buffer<std::size_t> mask_rows_;  // indices in the summary of the masks
  Buffer<double> own_keys_;
  std::size_t rows_ = 0;
  KeyRange seen_{};
};

}  // namespace isentrope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
