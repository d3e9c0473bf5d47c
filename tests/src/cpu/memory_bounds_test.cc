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
  Data data(parse_problem("shape=2x3x20x90x7 mask=causal:bottom_right"));
  const std::vector<float> signal = data.v;
  constexpr std::size_t kLast = 90 * 7 - 1;
  for (std::size_t i = 0; i < data.q.size(); ++i) data.q[i] = signal[i % (20 * 7)];
  for (std::size_t i = 0; i < data.k.size(); ++i) {
    data.k[i] = signal[i / 7 % 90 + i % 7];
    data.v[i] = signal[kLast - i % (kLast + 1)];
  }
  data.refresh();
  static AttentionInput in;
  in.q = View<const float, 4>{signal.data(), {2, 3, 20, 7}, {0, 0, 7, 1}};
  in.k = View<const float, 4>{signal.data(), {2, 3, 90, 7}, {0, 0, 1, 1}};
  in.v = View<const float, 4>{signal.data() + kLast, {2, 3, 90, 7}, {0, 0, -7, -1}};
  const Passes passes{
      .forward = [](const AttentionInput&, const AttentionOptions& options,
                    const AttentionOutput& out) { attention_forward(in, options, out); }};
  expect_same_bits(run_forward(data, {}, passes).output, run_forward(data).output);
}

}  // namespace
}  // namespace isentrope::check
