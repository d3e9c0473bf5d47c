#include "src/call/array_overlaps.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>

namespace isentrope {
namespace {

constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 60;  // bytes along an axis

struct Axis {
  std::uint64_t step, reach;  // bytes between neighbours, and from the first element to the last
};

std::uint64_t magnitude(std::int64_t value) {
  return value < 0 ? -static_cast<std::uint64_t>(value) : static_cast<std::uint64_t>(value);
}

}  // namespace

MemoryRange::MemoryRange(const void* data, std::int64_t size, std::span<const std::int64_t> extents,
                         std::span<const std::int64_t> strides) {
  if (std::ranges::find(extents, 0) != extents.end()) return;
  begin_ = reinterpret_cast<std::uintptr_t>(data);
  span_ = block_ = static_cast<std::uint64_t>(size);
  std::array<Axis, 4> walked;
  std::size_t rank = 0;
  for (std::size_t i = 0; i < extents.size(); ++i) {
    if (extents[i] == 1 || strides[i] == 0) continue;  // does not move the address
    Axis axis;
    if (__builtin_mul_overflow(magnitude(strides[i]), static_cast<std::uint64_t>(size),
                               &axis.step) ||
        __builtin_mul_overflow(axis.step, static_cast<std::uint64_t>(extents[i]) - 1,
                               &axis.reach) ||
        axis.reach > kMostBytes) {
      reachable_ = false;
      return;
    }
    if (strides[i] < 0) begin_ -= axis.reach;
    std::size_t at = rank++;
    for (; at > 0 && walked[at - 1].step > axis.step; --at) walked[at] = walked[at - 1];
    walked[at] = axis;
  }
  for (const Axis& axis : std::span(walked.data(), rank)) {
    distinct_ = distinct_ && axis.step >= span_;
    if (step_ == 0 && axis.step <= block_) {
      block_ += axis.reach;
    } else {
      step_ = std::gcd(step_, axis.step);
    }
    span_ += axis.reach;
  }
}

bool MemoryRange::overlaps(const MemoryRange& other) const {
  if (span_ == 0 || other.span_ == 0) return false;
  const std::uint64_t to_other = other.begin_ - begin_, from_other = begin_ - other.begin_;
  if (to_other >= span_ && from_other >= other.span_) return false;
  const std::uint64_t step = std::gcd(step_, other.step_);
  if (step == 0) return true;
  if (block_ >= step || other.block_ >= step) return true;
  // Offset of the other array's block between two blocks of this one.
  const std::uint64_t at =
      to_other < from_other ? to_other % step : (step - from_other % step) % step;
  return at < block_ || at + other.block_ > step;
}

void ArrayOverlaps::add(std::string_view name, const MemoryRange& range, bool written) {
  if (range.is_empty()) return;
  const std::string array(name);
  if (!range.is_reachable()) fail(array, "span at most 2^60 bytes", "strides that span more");
  if (written && !range.has_distinct_elements()) {
    fail(array, "have strides by which no elements overlap, because it is written",
         "strides by which some do");
  }
  for (std::size_t i = 0; written && i < count_; ++i) {
    if (arrays_[i].range.overlaps(range)) {
      fail(array, "not overlap another array, because it is written",
           "memory of " + arrays_[i].name);
    }
  }
  if (count_ == kMost) throw std::logic_error("[ArrayOverlaps] a call must have at most 64 arrays");
  arrays_[count_++] = {array, range};
}

}  // namespace isentrope
