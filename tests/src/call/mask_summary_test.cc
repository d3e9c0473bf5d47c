// MaskSummary against the masks read key by key, and calls whose mask says what a structure says.

#include "src/call/mask_summary.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>

#include "tools/check/judge.h"

namespace isentrope::check {
namespace {

constexpr float kHidden = -std::numeric_limits<float>::infinity();

bool sees(const AttentionOptions& o, std::int64_t b, std::int64_t h, std::int64_t i,
          std::int64_t j) {
  return (!o.bias || o.bias(b, h, i, j) != kHidden) && (!o.attn_mask || o.attn_mask(b, h, i, j));
}

// Compares the summary of a row with its keys, from some key to some other.
void expect_summary(const MaskSummary& masks, const AttentionOptions& options, std::int64_t b,
                    std::int64_t h, std::int64_t i, std::int64_t keys) {
  std::vector<std::int64_t> seen;
  for (std::int64_t j = 0; j < keys; ++j)
    if (sees(options, b, h, i, j)) seen.push_back(j);
  const std::size_t row = masks.row(b, h, i);
  const KeyRange range = masks.keys(row);
  ASSERT_EQ(range.size() > 0, !seen.empty());
  if (seen.empty()) return;
  ASSERT_EQ(range, (KeyRange{seen.front(), seen.back() + 1}));
  EXPECT_EQ(masks.count(row, {0, keys}), static_cast<std::int64_t>(seen.size()));
  for (const std::int64_t step : {std::int64_t{1}, std::int64_t{64}, keys}) {
    for (std::int64_t first = range.begin; first < range.end; first += step) {
      const std::int64_t last = std::min(range.end, first + step);
      std::int64_t count = 0, flat = 0;
      for (std::int64_t j = first; j < last; ++j) {
        count += sees(options, b, h, i, j);
        flat += sees(options, b, h, i, j) && (!options.bias || options.bias(b, h, i, j) == 0);
      }
      const KeysSeen state = masks.state(row, first, last);
      EXPECT_TRUE(state != KeysSeen::none || count == 0);
      EXPECT_TRUE(state != KeysSeen::biased || count == last - first);
      EXPECT_TRUE(state != KeysSeen::all || flat == last - first);
      if (first % 64 != 0 || last % 64 != 0) continue;
      EXPECT_EQ(state == KeysSeen::none, count == 0);
    }
  }
  EXPECT_EQ(masks.state(row, range.begin, range.end) == KeysSeen::some,
            static_cast<std::int64_t>(seen.size()) < range.size());
}

TEST(MaskSummary, TellsWhatEachRowSees) {
  for (const char* line :
       {"shape=2x3x5x1x4 bias=1", "shape=2x3x9x64x4 bias=1 additive_mask=1 bias_dt=f16",
        "shape=1x2x40x300x4 bias=1 additive_mask=1", "shape=1x2x9x130x4 admitted=1",
        "shape=1x2x12x700x4 bias=1 additive_mask=1 admitted=1 bias_dt=bf16"}) {
    SCOPED_TRACE(line);
    const Data data(parse_problem(line));
    const Problem& p = data.problem;
    AttentionOptions options = data.options();
    for (const bool shared : {false, true}) {
      if (shared && options.bias) options.bias.strides[1] = 0;
      if (shared && options.attn_mask) options.attn_mask.strides[1] = 0;
      const MaskSummary masks(data.input(), options, run_serially);
      ASSERT_TRUE(masks);
      for (std::int64_t row = 0; row < p.batch * p.heads * p.queries; ++row)
        expect_summary(masks, options, row / p.queries / p.heads, row / p.queries % p.heads,
                       row % p.queries, p.keys);
    }
  }
}

TEST(MaskSummary, ReadsAnyStrides) {
  const Data data(parse_problem("shape=1x2x7x200x4 bias=1 additive_mask=1 bias_dt=f16"));
  AttentionOptions options = data.options();
  auto& [address, type, extents, strides] = options.bias;
  address = static_cast<const std::uint16_t*>(address) + 199;  // the keys in reverse
  strides[3] = -1;
  const MaskSummary masks(data.input(), options, run_serially);
  for (std::int64_t i = 0; i < 7; ++i) expect_summary(masks, options, 0, 1, i, 200);
}

class AdditiveMask : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Calls, AdditiveMask,
                         ::testing::Values("shape=2x4:2x300x700x32", "dt=f16 shape=1x2x130x130x64",
                                           "kv=bf16 shape=1x6:2x70x600x64", "shape=1x8:2x2x5000x32",
                                           "kv=f16 shape=1x4:2x2x700x32"));

// A causal mask as numbers, shared by the heads, gives the bits of the causal structure.
TEST_P(AdditiveMask, OfACausalCallGivesItsBits) {
  const Data data(parse_problem(std::string(GetParam()) + " rule=entropy_invariant(base=64)"));
  const Problem& p = data.problem;
  AttentionOptions causal = data.options();
  causal.mask.causal = Causal::bottom_right;
  AttentionOptions masked = data.options();
  std::vector<std::uint16_t> numbers(static_cast<std::size_t>(p.queries * p.keys));
  for (std::int64_t i = 0; i < p.queries; ++i) {
    for (std::int64_t j = 0; j < p.keys; ++j)
      numbers[static_cast<std::size_t>(i * p.keys + j)] =
          from_float<Float16>(j > i + p.keys - p.queries ? kHidden : 0).bits;
  }
  masked.bias = {
      numbers.data(), DType::f16, {p.batch, p.heads, p.queries, p.keys}, {0, 0, p.keys, 1}};
  masked.bias_hides = true;
  const ForwardResult want = run_forward(data, causal), got = run_forward(data, masked);
  EXPECT_EQ(got.output, want.output);
  EXPECT_EQ(got.entropy, want.entropy);
  EXPECT_EQ(got.lambda, want.lambda);
  EXPECT_EQ(got.support, want.support);
  masked.bias_hides = false;  // n is then the number of all keys
  EXPECT_NE(run_forward(data, masked).lambda, want.lambda);
}

}  // namespace
}  // namespace isentrope::check
