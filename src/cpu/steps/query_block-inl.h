
#if defined(ISENTROPE_QUERY_BLOCK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPE_QUERY_BLOCK_INL_H_
#undef ISENTROPE_QUERY_BLOCK_INL_H_
#else
#define ISENTROPE_QUERY_BLOCK_INL_H_
#endif

#include <algorithm>
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

HWY_BEFORE_NAMESPACE();
namespace isentrope::HWY_NAMESPACE {

// The rows of a query block: all query heads of the group, one after the other, share keys.
class QueryBlock {
 public:
  QueryBlock(const Call& call, bool asks_distance)
      : call_(call),
        asks_distance_(asks_distance),
        group_(call.input.q.extents[1] / call.plan.kv_heads),
        queries_(call.input.q),
        next_queries_(call.input.q) {}

  // Arrays for `rows` rows. lambda and own_keys also cover the lanes past the last row.
  Scratch::Array pointers(std::size_t rows) { return queries_.pointers(rows); }
  Scratch::Array next_pointers(std::size_t rows) { return next_queries_.pointers(rows); }
  Scratch::Array copy(std::size_t rows) { return queries_.copy(rows); }
  Scratch::Array lambda(std::size_t rows) { return {lambda_, rows}; }
  Scratch::Array ranges(std::size_t rows) { return {ranges_, rows}; }
  Scratch::Array own_keys(std::size_t rows) { return {own_keys_, asks_distance_ ? rows : 0}; }

  void list(const WorkItem& item) noexcept {
    rows_ = static_cast<std::size_t>(group_ * (item.end - item.begin));
    seen_ = list_row_ranges(call_.options.mask, item, group_, call_.input.q.extents[2],
                            call_.plan.keys, ranges_.at(0, rows_));
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
  // Returns whether a row sees one of these keys. Only dilated rows may skip blocks of the union.
  [[nodiscard]] bool any_sees(std::int64_t begin, std::int64_t end) const {
    if (call_.options.mask.dilation <= 1) return true;
    const KeyRange* ranges = ranges_.at(0, rows_);
    return std::any_of(ranges, ranges + rows_,
                       [&](const KeyRange& range) { return range.within(begin, end).size() > 0; });
  }
  // Returns the keys at the positions of rows from `row` on; null unless distances are needed.
  [[nodiscard]] const double* own_keys_from(std::size_t row) const {
    return asks_distance_ ? own_keys_.data() + row : nullptr;
  }

 private:
  // Masks depend on batch and query, not on the head.
  void list_own_keys(const WorkItem& item) {
    const auto of_head = static_cast<std::size_t>(item.end - item.begin);
    isentrope::list_own_keys(call_.options.mask, item.batch, item.begin, item.end,
                             call_.input.q.extents[2], call_.plan.keys, own_keys_.data());
    for (std::size_t row = of_head; row < rows_; ++row) own_keys_[row] = own_keys_[row - of_head];
    std::fill(own_keys_.data() + rows_, own_keys_.data() + own_keys_.size(), 0.0);
  }

  const Call& call_;
  const bool asks_distance_;
  const std::int64_t group_;
  Operand queries_, next_queries_;
  Buffer<float> lambda_;
  Buffer<KeyRange> ranges_;
  Buffer<double> own_keys_;
  std::size_t rows_ = 0;
  KeyRange seen_{};
};

}  // namespace isentrope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
