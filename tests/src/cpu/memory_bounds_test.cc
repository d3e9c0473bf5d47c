// Memory access of the kernels: within the views, at any address, at offsets beyond 2^31 elements.

#include <gtest/gtest.h>

#include <string_view>

#include "tests/support/on_target.h"
#include "tests/support/relocated.h"
#include "tests/support/same_bits.h"

namespace isentrope::check {
namespace {

class MemoryBounds : public TargetTest {};
ISENTROPE_ON_EVERY_TARGET(MemoryBounds);

TEST_P(MemoryBounds, NothingOutsideTheViewsIsTouchedAndNoAlignmentIsNeeded) {
  for (const char* line :
       {"shape=1x1x1x1x1", "shape=1x2x7x13x5:3", "shape=1x1x33x65x31:17 mask=causal:top_left",
        "dt=bf16 shape=1x2:1x25x67x9:11 bias=1 admitted=1 cap=5 sink=1 mask=window=9:3",
        "dt=f16 shape=2x1x13x129x33 mask=left_padding,right_padding lambda=1",
        "shape=1x2x50x70x7 mask=documents=4",
        "kv=bf16 shape=1x2:1x25x67x32 bias=1 bias_dt=f16 slopes=1",
        "kv=f16 shape=1x2:1x1x67x32:40 bias=1 additive_mask=1 bias_dt=bf16 bias_hides=1",
        // Read in place or copied: the product rounds rows and columns up to four.
        "shape=1x2x40x264x32", "shape=1x2x40x262x32", "shape=1x2x40x264x30:34",
        "shape=1x1x40x264x32 mask=window=9:3", "dt=bf16 shape=1x1x37x260x64:36",
        "shape=1x2x37x262x30:34 mask=offset=3:5 dropout=0.5", "shape=1x2x1x4500x16 dropout=0.5",
        "shape=1x1x3x600x3", "shape=1x2x1x4500x3",
        "dt=bf16 shape=1x2:1x3x61x7 pages=7 mask=right_padding"}) {
    const bool is_paged = std::string_view(line).find("pages") != std::string_view::npos;
    for (const Place place : {Place::left, Place::right}) {
      SCOPED_TRACE(line);
      place_of_arrays = place;
      expect_same_bits(parse_problem(line + std::string(is_paged ? "" : " bwd=1 second=1")),
                       relocated_passes());
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(MemoryBounds, OffsetsBeyondTwoToThe31AreRight) {
  place_of_arrays = Place::far;
  far_was_refused = false;
  expect_same_bits(
      parse_problem("shape=1x2x2x3x4 admitted=1 bias=1 mask=causal:bottom_right bwd=1 second=1"),
      relocated_passes());
  if (far_was_refused) GTEST_SKIP() << "the system refuses that much address space";
}

TEST_P(MemoryBounds, OverlappingBroadcastAndReversedInputsReadAsTheyIndex) {
  // Keys are overlapping windows of one signal; all heads share them; values have negative strides.
  const Data signal(parse_problem("shape=1x1x20x90x7"));
  View<const float, 4> q = contiguous_view<const float, 4>(signal.q.data(), {1, 1, 20, 7});
  q.extents = {2, 3, 20, 7};
  q.strides[0] = q.strides[1] = 0;
  const View<const float, 4> k{signal.k.data(), {2, 3, 90, 7}, {0, 0, 1, 1}};
  const View<const float, 4> v{signal.v.data() + 90 * 7 - 1, {2, 3, 90, 7}, {0, 0, -7, -1}};
  const auto dense = [](const View<const float, 4>& view) {
    std::vector<float> values;
    for (std::int64_t i = 0;
         i < view.extents[0] * view.extents[1] * view.extents[2] * view.extents[3]; ++i) {
      const auto [b, h, r, c] = view.extents;
      values.push_back(view(i / c / r / h, i / c / r % h, i / c % r, i % c));
    }
    return values;
  };
  const auto q_copy = dense(q), k_copy = dense(k), v_copy = dense(v);
  std::vector<float> got(2 * 3 * 20 * 7), want(got.size());
  const std::array<std::int64_t, 4> shape = {2, 3, 20, 7};
  const AttentionOptions options{.mask = {.causal = Causal::bottom_right}};
  attention_forward({q, k, v}, options, {contiguous_view<float, 4>(got.data(), shape), {}});
  attention_forward({contiguous_view<const float, 4>(q_copy.data(), q.extents),
                     contiguous_view<const float, 4>(k_copy.data(), k.extents),
                     contiguous_view<const float, 4>(v_copy.data(), v.extents)},
                    options, {contiguous_view<float, 4>(want.data(), shape), {}});
  EXPECT_EQ(got, want);
}

}  // namespace
}  // namespace isentrope::check
