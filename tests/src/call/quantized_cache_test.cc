// Caches in 8 bits: output of quantize(), and the operator's results from it.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "isentrope/error.h"
#include "isentrope/quantize.h"
#include "tests/support/on_target.h"
#include "tests/support/refusals.h"
#include "tests/support/same_bits.h"
#include "tests/support/words.h"
#include "tools/check/generate.h"
#include "tools/check/judge.h"

namespace isentrope::check {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kLargest = std::numeric_limits<float>::max();

struct Quantized {
  Quantized(const ConstTensor& rows, std::int64_t groups)
      : codes(static_cast<std::size_t>(rows.extents[0] * rows.extents[1] * rows.extents[2] *
                                       rows.extents[3])),
        scales(codes.size() / static_cast<std::size_t>(rows.extents[3] / groups)) {
    std::array<std::int64_t, 4> shape = rows.extents;
    code_view = contiguous_view<std::int8_t, 4>(codes.data(), shape);
    shape[3] = groups;
    scale_view = contiguous_view<float, 4>(scales.data(), shape);
    quantize(rows, code_view, scale_view);
  }
  [[nodiscard]] float number(std::size_t i) const {
    return static_cast<float>(codes[i]) * scales[i / (codes.size() / scales.size())];
  }

  std::vector<std::int8_t> codes;
  std::vector<float> scales;
  View<std::int8_t, 4> code_view;
  View<float, 4> scale_view;
};

Quantized quantized_row(const std::vector<float>& row, std::int64_t groups = 1) {
  return {
      contiguous_view<const float, 4>(row.data(), {1, 1, 1, static_cast<std::int64_t>(row.size())}),
      groups};
}

TEST(Quantize, NumbersAreHalfAStepOffAtMost) {
  std::mt19937 random(1);
  for (const float magnitude : {1e-36f, 1.0f, 1e30f}) {
    std::normal_distribution<float> normal(0, magnitude);
    std::vector<float> row(96);
    for (float& x : row) x = normal(random);
    for (const std::int64_t groups : {1, 3, 96}) {
      const Quantized to = quantized_row(row, groups);
      const auto group = row.size() / static_cast<std::size_t>(groups);
      for (std::size_t i = 0; i < row.size(); ++i) {
        double largest = 0;
        for (std::size_t c = i / group * group; c < (i / group + 1) * group; ++c)
          largest = std::fmax(largest, std::abs(row[c]));
        EXPECT_LE(std::abs(to.number(i) - row[i]), largest / 254 * (1 + 0x1p-14) + 0x1p-127);
        EXPECT_LE(std::abs(to.codes[i]), 127);
      }
    }
  }
}

TEST(Quantize, TakesTheNearestCodeAndTheEvenOneOfTwo) {
  const Quantized to = quantized_row({127, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, 0.75f, -126.6f});
  EXPECT_EQ(to.scales[0], 1);
  EXPECT_EQ(to.codes, (std::vector<std::int8_t>{127, 0, 2, 2, 0, -2, 1, -127}));
}

TEST(Quantize, EveryTypeAndStrideReadsTheSame) {
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  const std::array<std::int64_t, 4> shape = {2, 3, 5, 8};
  std::vector<float> numbers(240), turned(240);
  std::vector<BFloat16> as_bf16;
  std::vector<Float16> as_f16;
  for (float& x : numbers) {
    x = rounded_to(DType::f16, rounded_to(DType::bf16, normal(random)));
    as_bf16.push_back(from_float<BFloat16>(x));
    as_f16.push_back(from_float<Float16>(x));
  }
  for (std::size_t i = 0; i < numbers.size(); ++i) turned[i % 8 * 30 + i / 8] = numbers[i];
  const Quantized want(contiguous_view<const float, 4>(numbers.data(), shape), 2);
  const View<const float, 4> across{turned.data(), shape, {15, 5, 1, 30}};
  for (const ConstTensor& rows :
       {ConstTensor(contiguous_view<const BFloat16, 4>(as_bf16.data(), shape)),
        ConstTensor(contiguous_view<const Float16, 4>(as_f16.data(), shape)),
        ConstTensor(across)}) {
    const Quantized got(rows, 2);
    EXPECT_EQ(got.codes, want.codes);
    EXPECT_EQ(got.scales, want.scales);
  }
}

TEST(Quantize, OnlyTheGroupThatHoldsNoNumberIsNone) {
  for (const float x : {kNaN, kInfinity, -kInfinity}) {
    const Quantized to = quantized_row({1, 2, x, 3, 4, 0}, 3);
    EXPECT_EQ(to.number(1), 2);
    EXPECT_TRUE(std::isnan(to.number(2)) && std::isnan(to.number(3)));
    EXPECT_EQ(to.number(4), 4);
  }
}

TEST(Quantize, TheEndsOfFloatStayFinite) {
  const Quantized large = quantized_row({kLargest, -kLargest});
  EXPECT_TRUE(std::isfinite(large.number(0)) && std::isfinite(large.number(1)));
  const Quantized small = quantized_row({1e-40f, -1e-44f});
  EXPECT_EQ(small.number(0), 0);
  const Quantized none = quantized_row({0, -0.0f});
  EXPECT_EQ(none.number(0), 0);
}

TEST(Quantize, RefusesWhatDoesNotFit) {
  std::vector<float> row(8);
  EXPECT_THROW(quantized_row(row, 3), Error);
  Quantized to = quantized_row(row);
  const ConstTensor rows = contiguous_view<const float, 4>(row.data(), {1, 1, 1, 8});
  View<std::int8_t, 4> codes = to.code_view;
  codes.extents[3] = 4;
  EXPECT_THROW(quantize(rows, codes, to.scale_view), Error);
  codes = to.code_view;
  codes.strides[3] = 0;
  EXPECT_THROW(quantize(rows, codes, to.scale_view), Error);
  EXPECT_THROW(quantize(to.code_view, to.code_view, to.scale_view), Error);
  codes = to.code_view;
  codes.data = reinterpret_cast<std::int8_t*>(row.data());
  EXPECT_THROW(quantize(rows, codes, to.scale_view), Error);
  Tensor negative;
  negative.extents = {1, 1, -1, 8};
  expect_words(message_of([&] { quantize(negative, {}, {}); }), {"negative"});
}

class QuantizedCache : public TargetTest {};
ISENTROPE_ON_EVERY_TARGET(QuantizedCache);

// Returns the dequantized cache as floats.
std::vector<float> widened(const ConstTensor& codes, const View<const float, 4>& scales) {
  const auto [outer, heads, rows, columns] = codes.extents;
  const View<const std::int8_t, 4> of{static_cast<const std::int8_t*>(codes.data), codes.extents,
                                      codes.strides};
  std::vector<float> numbers;
  for (std::int64_t i = 0; i < outer * heads * rows * columns; ++i) {
    const std::int64_t c = i % columns, row = i / columns % rows;
    const std::int64_t head = i / columns / rows % heads, batch = i / columns / rows / heads;
    numbers.push_back(scales(batch, head, row, c / (columns / scales.extents[3])) *
                      static_cast<float>(of(batch, head, row, c)));
  }
  return numbers;
}

// Returns the output in f32, lse and entropy of every row.
std::vector<float> run(const AttentionInput& in, const AttentionOptions& options) {
  const auto [batch, heads, queries, dim] = in.q.extents;
  const std::int64_t rows = batch * heads * queries, columns = in.v.extents[3];
  std::vector<float> got(static_cast<std::size_t>(rows * (columns + 2)));
  float* const lse = got.data() + rows * columns;
  AttentionOutput out{contiguous_view<float, 4>(got.data(), {batch, heads, queries, columns})};
  out.statistics.lse = contiguous_view<float, 3>(lse, {batch, heads, queries});
  out.statistics.entropy = contiguous_view<float, 3>(lse + rows, {batch, heads, queries});
  attention_forward(in, options, out);
  return got;
}

// Bit for bit on every path: decode steps of one row to eight and more, split or not, paged or
// strided columns, and groups of three or smaller than a vector.
TEST_P(QuantizedCache, IsReadAsTheNumbersItStandsFor) {
  for (const char* line :
       {"dt=bf16 shape=2x8:2x1x300x64 cache=32", "dt=bf16 shape=1x4:1x1x4500x64 cache=64",
        "dt=bf16 shape=2x4:2x2x333x32 cache=8 pages=7 mask=causal:bottom_right",
        "dt=f16 shape=1x3x2x90x64:32 cache=16 mask=window=40:0", "shape=1x4:1x40x70x20 cache=4",
        "dt=bf16 shape=2x4:2x3x333x64 cache=32 pages=7 mask=causal:bottom_right",
        "shape=1x6:2x1x77x144 cache=48", "shape=1x5:1x1x130x256:96 cache=32",
        "shape=1x8:1x1x67x160:16 cache=16", "dt=bf16 shape=1x2x1x257x64 cache=32",
        "shape=1x2x1x90x80 cache=20"}) {
    const Data data(parse_problem(line));
    AttentionInput in = data.input();
    // The reference uses q in f32, as products with an 8-bit cache do.
    in.q = contiguous_view<const float, 4>(data.q.data(), in.q.extents);
    AttentionInput in_floats = in;
    const std::vector<float> k = widened(in.k, in.k_scale), v = widened(in.v, in.v_scale);
    in_floats.k = contiguous_view<const float, 4>(k.data(), in.k.extents);
    in_floats.v = contiguous_view<const float, 4>(v.data(), in.v.extents);
    in_floats.k_scale = in_floats.v_scale = {};
    SCOPED_TRACE(line);
    const std::vector<float> want = run(in_floats, data.options());
    expect_same_bits(run(in, data.options()), want);
    in.q = data.input().q;  // in its type
    expect_same_bits(run(in, data.options()), want);
  }
}

TEST_P(QuantizedCache, GeneratedProblemsAreWithinBudget) {
  std::int64_t judged = 0;
  for (std::int64_t index = 0; index < 400; ++index) {
    Problem problem = generated_problem(7, index, 20'000);
    problem.backward = problem.special = false;
    for (const std::int64_t group : {64, 32, 16, 8, 5, 3, 1}) {
      if (problem.dim % group != 0 || problem.value_dim % group != 0) continue;
      problem.cache_group = group;
      break;
    }
    const Verdict verdict = Judge(problem).judge();
    EXPECT_NE(verdict.outcome, Outcome::failed)
        << text_of(problem) << ": " << verdict.worst().worst << " " << verdict.worst().where;
    judged += verdict.outcome == Outcome::passed;
  }
  EXPECT_GT(judged, 250);
}

TEST(QuantizedCacheCall, IsRefusedByName) {
  expect_refusals("shape=1x2x1x9x8 cache=8",
                  {{"k_scale must have a number of groups that divides 8 columns; got 0",
                    [](auto& in, auto&) { in.k_scale = {}; }},
                   {"v_scale must have shape [1, 2, 9, 1]; got [1, 2, 8, 1]",
                    [](auto& in, auto&) { in.v_scale.extents[2] = 8; }},
                   {"q must be f32, bf16 or f16; got i8", [](auto& in, auto&) { in.q = in.k; }},
                   {"v must be i8, as k is; got f32",
                    [](auto& in, auto&) { in.v = in.q, in.v.extents[2] = 9; }},
                   {"k_scale must be absent unless k and v are 8-bit codes; got one",
                    [](auto& in, auto&) { in.k.type = in.v.type = DType::f32; }}});
}

TEST(QuantizedCacheCall, HasNoBackwardPass) {
  EXPECT_EQ(Judge(parse_problem("shape=1x2x3x9x8 cache=8 bwd=1")).judge().outcome,
            Outcome::skipped);
  const Data data(parse_problem("shape=1x2x3x9x8 cache=8"));
  EXPECT_THROW(attention_backward(data.input(), data.options(), {}, {}), Error);
}

}  // namespace
}  // namespace isentrope::check
