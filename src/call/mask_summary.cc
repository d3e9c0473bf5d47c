#include "src/call/mask_summary.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

namespace isentrope {
namespace {

constexpr std::int64_t kGroup = 64;  // keys with one state

// Number of keys that a task reads.
constexpr std::int64_t kKeysOfTask = 1 << 18;

// One byte for each key of a group. Loops over them have no branches, so compilers vectorize them.
struct Group {
  std::uint8_t seen[kGroup], flat[kGroup];  // flat: with a bias of 0
};

// Reads `count` numbers, `stride` apart. Bits: an unsigned integer of the numbers' size.
template <typename Bits>
void read_bias(const Bits* from, std::int64_t stride, std::int64_t count, Bits hidden, Group& to) {
  const auto read = [&](auto step) {
    for (std::int64_t i = 0; i < count; ++i) {
      const Bits bits = from[i * step];
      to.seen[i] = bits != hidden;
      to.flat[i] = static_cast<Bits>(bits << 1) == 0;  // either zero
    }
  };
  stride == 1 ? read(std::integral_constant<std::int64_t, 1>()) : read(stride);
}

void hide(const std::uint8_t* from, std::int64_t stride, std::int64_t count, Group& to) {
  for (std::int64_t i = 0; i < count; ++i) to.seen[i] &= from[i * stride] != 0;
}

std::int64_t elements(const std::array<std::int64_t, 4>& strides, std::int64_t batch,
                      std::int64_t head, std::int64_t query) {
  return batch * strides[0] + head * strides[1] + query * strides[2];
}

}  // namespace

// Reads rows of the masks.
class MaskSummary::Reader {
 public:
  Reader(const AttentionOptions& options, std::int64_t keys) : options_(options), keys_(keys) {}

  Row read(std::int64_t batch, std::int64_t head, std::int64_t query, KeysSeen* states) {
    const auto& [data, type, extents, strides] = options_.bias;
    bias_ = static_cast<const std::byte*>(data);
    if (bias_) bias_ += elements(strides, batch, head, query) * size_of(type);
    const View<const std::uint8_t, 4>& mask = options_.attn_mask;
    mask_ = mask ? mask.data + elements(mask.strides, batch, head, query) : nullptr;
    Row row{.begin = keys_};
    Group group{};
    for (std::int64_t first = 0; first < keys_; first += kGroup) {
      const std::int64_t count = std::min(kGroup, keys_ - first);
      states[first / kGroup] = read_group(first, count, group);
      if (states[first / kGroup] == KeysSeen::none) continue;
      const std::uint8_t* const seen = group.seen;
      if (row.seen == 0) row.begin = first + (std::find(seen, seen + count, 1) - seen);
      row.end = first + count;
      while (seen[row.end - 1 - first] == 0) --row.end;
      row.seen += std::count(seen, seen + count, 1);
    }
    if (row.seen == 0) return {};
    // The ends of the row may lie within groups.
    const std::int64_t first = row.begin / kGroup, last = (row.end - 1) / kGroup;
    for (const std::int64_t at : {first, last}) {
      const std::int64_t begin = std::max(row.begin, at * kGroup);
      states[at] = read_group(begin, std::min(row.end, (at + 1) * kGroup) - begin, group);
    }
    row.state = states[first];
    for (std::int64_t at = first + 1; at <= last; ++at) row.state = join(row.state, states[at]);
    return row;
  }

 private:
  KeysSeen read_group(std::int64_t first, std::int64_t count, Group& group) const {
    std::memset(&group, 1, sizeof group);
    const std::int64_t stride = options_.bias.strides[3];
    const auto bias = [&]<typename Bits>(Bits hidden) {
      read_bias(reinterpret_cast<const Bits*>(bias_) + first * stride, stride, count, hidden,
                group);
    };
    if (bias_ && options_.bias.type == DType::f32) bias(std::uint32_t{0xff800000});
    if (bias_ && options_.bias.type == DType::bf16) bias(std::uint16_t{0xff80});
    if (bias_ && options_.bias.type == DType::f16) bias(std::uint16_t{0xfc00});
    const std::int64_t mask_stride = options_.attn_mask.strides[3];
    if (mask_) hide(mask_ + first * mask_stride, mask_stride, count, group);
    int seen = 0, flat = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      seen += group.seen[i];
      flat += group.seen[i] & group.flat[i];
    }
    if (seen == 0) return KeysSeen::none;
    if (seen < count) return KeysSeen::some;
    return flat == seen ? KeysSeen::all : KeysSeen::biased;
  }

  const AttentionOptions& options_;
  const std::int64_t keys_;
  const std::byte* bias_ = nullptr;  // of the row
  const std::uint8_t* mask_ = nullptr;
};

MaskSummary::MaskSummary(const AttentionInput& in, const AttentionOptions& options,
                         const ParallelFor& parallel_for) {
  if (!options.attn_mask && !options.bias) return;
  std::int64_t rows = 1;
  for (std::size_t axis = 3; axis-- > 0;) {
    const bool differs = (options.attn_mask && options.attn_mask.strides[axis] != 0) ||
                         (options.bias && options.bias.strides[axis] != 0);
    extents_[axis] = differs ? in.q.extents[axis] : 1;
    steps_[axis] = differs ? rows : 0;
    rows *= extents_[axis];
  }
  const std::int64_t keys = in.keys();
  groups_ = (keys + kGroup - 1) / kGroup;
  rows_.resize(static_cast<std::size_t>(rows));
  states_.resize(static_cast<std::size_t>(rows * groups_));
  const std::int64_t of_task =
      std::max<std::int64_t>(1, kKeysOfTask / std::max<std::int64_t>(keys, 1));
  parallel_for((rows + of_task - 1) / of_task, [&](std::int64_t task) {
    Reader reader(options, keys);
    for (std::int64_t row = task * of_task; row < std::min(rows, (task + 1) * of_task); ++row) {
      rows_[static_cast<std::size_t>(row)] =
          reader.read(row / extents_[2] / extents_[1], row / extents_[2] % extents_[1],
                      row % extents_[2], states_.data() + row * groups_);
    }
  });
  has_gaps_ =
      std::ranges::any_of(rows_, [](const Row& row) { return row.state == KeysSeen::some; });
}

KeysSeen MaskSummary::state(std::size_t row, std::int64_t first, std::int64_t last) const {
  const KeysSeen whole = rows_[row].state;
  if (whole == KeysSeen::all || first >= last) return whole;
  const KeysSeen* const states = states_.data() + static_cast<std::int64_t>(row) * groups_;
  KeysSeen state = states[first / kGroup];
  for (std::int64_t group = first / kGroup + 1; group <= (last - 1) / kGroup; ++group)
    state = join(state, states[group]);
  return state;
}

std::int64_t MaskSummary::count(std::size_t row, const KeyRange& range) const {
  const auto& [begin, end, seen, state] = rows_[row];
  if (range.stride == 1 && range.begin <= begin && end <= range.end) return seen;
  return state == KeysSeen::some ? -1 : range.within(begin, end).size();
}

}  // namespace isentrope
