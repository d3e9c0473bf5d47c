// Guarantees for rows: each line of the contract (docs/semantics.md), on every instruction set.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <deque>
#include <limits>
#include <mutex>
#include <thread>
#include <vector>

#include "isentrope/derivatives.h"
#include "isentrope/error.h"
#include "isentrope/target.h"
#include "tools/check/derivatives.h"
#include "tools/check/judge.h"

namespace isentrope::check {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

class RowPromises : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { use_target(GetParam()); }
  void TearDown() override { use_target(supported_targets().front()); }
};
INSTANTIATE_TEST_SUITE_P(All, RowPromises, ::testing::ValuesIn(supported_targets()),
                         [](const auto& target) { return target.param; });

BackwardResult run_backward(const Data& data, const ForwardResult& forward) {
  return check::run_backward(data, forward, random_gradient(data.problem));
}

bool same_bits(float a, float b) { return std::memcmp(&a, &b, sizeof a) == 0; }

TEST_P(RowPromises, ARowWithoutKeysIsZeroAndGetsNoGradient) {
  // With 9 queries, 4 keys and the diagonal at the bottom right, the first 5 rows see nothing.
  Data data(parse_problem("shape=1x1x9x4x8 mask=causal:bottom_right rule=entropy_invariant"));
  data.q[3] = kNaN;  // even NaN has no effect
  data.refresh();
  const ForwardResult forward = run_forward(data);
  const BackwardResult backward = run_backward(data, forward);
  for (std::size_t row = 0; row < 5; ++row) {
    EXPECT_EQ(forward.lse[row], -kInfinity);
    EXPECT_EQ(forward.max_logit[row], -kInfinity);
    EXPECT_EQ(forward.entropy[row], 0);
    EXPECT_EQ(forward.collision[row], 0);
    EXPECT_EQ(forward.variance[row], 0);
    EXPECT_EQ(forward.support[row], 0);
    for (std::size_t c = 0; c < 8; ++c) {
      EXPECT_EQ(forward.output[row * 8 + c], 0);
      EXPECT_EQ(backward.dq[row * 8 + c], 0);
    }
  }
  for (const float value : backward.dk) EXPECT_TRUE(std::isfinite(value));
}

TEST_P(RowPromises, WithoutKeysEveryRowIsEmpty) {
  const Data data(parse_problem("shape=2x1x3x0x8"));
  const ForwardResult forward = run_forward(data);
  for (const float value : forward.output) EXPECT_EQ(value, 0);
  for (const float value : forward.lse) EXPECT_EQ(value, -kInfinity);
  for (const float value : run_backward(data, forward).dq) EXPECT_EQ(value, 0);
}

TEST_P(RowPromises, OneKeyReturnsItsValueExactly) {
  for (const ScaleRule& rule :
       {ScaleRule::standard(), ScaleRule::log_length(), ScaleRule::constant(1e6)}) {
    Problem problem = parse_problem("shape=2x3x1x1x16");
    problem.rule = rule;
    const Data data(problem);
    const ForwardResult forward = run_forward(data);
    EXPECT_EQ(forward.output, data.v);
    for (const float value : forward.entropy) EXPECT_EQ(value, 0);
    for (const float value : forward.collision) EXPECT_EQ(value, 1);
    for (const float value : forward.variance) EXPECT_EQ(value, 0);
  }
}

TEST_P(RowPromises, LambdaZeroIsUniform) {
  const Data data(parse_problem("shape=1x1x50x50x8 mask=causal:top_left rule=constant(scale=0)"));
  const ForwardResult forward = run_forward(data);
  for (std::size_t row = 0; row < 50; ++row) {
    const double support = static_cast<double>(row + 1);
    EXPECT_NEAR(forward.entropy[row], std::log(support), 1e-6 * (1 + std::log(support)));
    EXPECT_NEAR(forward.collision[row], 1 / support, 1e-6 / support);
  }
}

// Tangents and second order: no key, no derivative; NaN in a tangent stays in the rows that see it;
// threads change no bit.
TEST_P(RowPromises, TangentsKeepTheRowsPromises) {
  const Data data(parse_problem("shape=1x2x9x7x8 mask=causal:bottom_right sink=1 cap=3"));
  const ForwardResult forward = run_forward(data);
  const reference::GradientInput upstream = random_gradient(data.problem);
  Tensors tangents = random_tangents(data.problem);
  tangents.k.assign(data.k.begin(), data.k.end());
  const TangentResult clean = run_tangent(data, forward, tangents);
  const BackwardResult second = run_second_order(data, forward, tangents, clean, upstream);
  const TangentResult threads = run_tangent(data, forward, tangents, run_on_pool);
  EXPECT_EQ(0, std::memcmp(clean.output.data(), threads.output.data(),
                           clean.output.size() * sizeof(float)));
  const BackwardResult second_threads =
      run_second_order(data, forward, tangents, clean, upstream, run_on_pool);
  EXPECT_EQ(
      0, std::memcmp(second.dk.data(), second_threads.dk.data(), second.dk.size() * sizeof(float)));
  for (std::size_t c = 0; c < 2 * 8; ++c) {  // the first two rows see nothing
    EXPECT_EQ(clean.output[c], 0);
    EXPECT_EQ(second.dq[c], 0);
  }
  // Key 6 of head 0 is seen by its last row alone.
  tangents.k[6 * 8] = static_cast<double>(kNaN);
  const TangentResult poisoned = run_tangent(data, forward, tangents);
  const BackwardResult second_poisoned =
      run_second_order(data, forward, tangents, poisoned, upstream);
  for (std::size_t row = 0; row < 18; ++row) {
    for (std::size_t c = 0; c < 8; ++c) {
      const std::size_t at = row * 8 + c;
      if (row == 8) {
        EXPECT_TRUE(std::isnan(poisoned.output[at]));
        EXPECT_TRUE(std::isnan(second_poisoned.dq[at]));
      } else {
        EXPECT_TRUE(same_bits(poisoned.output[at], clean.output[at])) << "row " << row;
        EXPECT_TRUE(same_bits(second_poisoned.dq[at], second.dq[at])) << "row " << row;
      }
    }
  }
}

// Sets one number to NaN: exactly the rows that see it become NaN, others keep their bits.
void expect_poisoned_rows(const char* line, std::vector<float> Data::* argument, std::size_t row,
                          float poison, const std::function<bool(std::int64_t)>& sees) {
  Data data(parse_problem(line));
  const Problem& p = data.problem;
  const ForwardResult clean = run_forward(data);
  const BackwardResult clean_gradient = run_backward(data, clean);
  const std::size_t columns =
      (data.*argument).size() / static_cast<std::size_t>(argument == &Data::q ? p.queries : p.keys);
  for (std::size_t c = 0; c < columns; ++c) (data.*argument)[row * columns + c] = poison;
  data.refresh();
  const ForwardResult forward = run_forward(data);
  const BackwardResult backward = run_backward(data, forward);
  for (std::int64_t i = 0; i < p.queries; ++i) {
    const auto at = static_cast<std::size_t>(i * p.value_dim);
    if (sees(i)) {
      EXPECT_FALSE(std::isfinite(forward.output[at])) << "row " << i;
      EXPECT_FALSE(std::isfinite(backward.dq[static_cast<std::size_t>(i * p.dim)])) << "row " << i;
      if (argument != &Data::v) {
        EXPECT_FALSE(std::isfinite(forward.entropy[static_cast<std::size_t>(i)])) << "row " << i;
      }
      continue;
    }
    for (std::size_t c = 0; c < static_cast<std::size_t>(p.value_dim); ++c) {
      EXPECT_TRUE(same_bits(forward.output[at + c], clean.output[at + c])) << "row " << i;
    }
    EXPECT_TRUE(same_bits(forward.lse[static_cast<std::size_t>(i)],
                          clean.lse[static_cast<std::size_t>(i)]));
    for (std::size_t c = 0; c < static_cast<std::size_t>(p.dim); ++c) {
      const std::size_t q_at = static_cast<std::size_t>(i * p.dim) + c;
      EXPECT_TRUE(same_bits(backward.dq[q_at], clean_gradient.dq[q_at])) << "row " << i;
    }
  }
}

TEST_P(RowPromises, ANaNQueryPoisonsItsRowAlone) {
  for (const char* line : {"shape=1x1x60x300x16", "shape=1x1x60x300x16 mask=causal:top_left"}) {
    expect_poisoned_rows(line, &Data::q, 17, kNaN, [](std::int64_t i) { return i == 17; });
  }
}

TEST_P(RowPromises, ANaNKeyOrValuePoisonsTheRowsThatSeeIt) {
  for (const std::size_t key : {0u, 130u, 270u, 299u}) {
    for (const auto argument : {&Data::k, &Data::v}) {
      for (const char* line : {"shape=1x1x300x300x16 mask=causal:top_left",
                               "dt=bf16 shape=1x1x300x300x64 mask=causal:top_left"}) {
        expect_poisoned_rows(line, argument, key, kNaN,
                             [key](std::int64_t i) { return i >= static_cast<std::int64_t>(key); });
      }
    }
  }
  // Few rows read keys and values in place; bf16 rows of whole vectors have their own products.
  for (const std::int64_t key : {5, 297, 298, 299}) {
    for (const auto argument : {&Data::k, &Data::v}) {
      for (const char* line : {"shape=1x1x4x300x32 mask=causal:bottom_right",
                               "dt=bf16 shape=1x1x4x300x32 mask=causal:bottom_right"}) {
        expect_poisoned_rows(line, argument, static_cast<std::size_t>(key), kNaN,
                             [key](std::int64_t i) { return i + 296 >= key; });
      }
    }
  }
  for (const std::int64_t key : {5, 230, 299}) {
    for (const auto argument : {&Data::k, &Data::v}) {
      expect_poisoned_rows("dt=bf16 shape=1x1x100x300x64 mask=causal:bottom_right", argument,
                           static_cast<std::size_t>(key), kNaN,
                           [key](std::int64_t i) { return i + 200 >= key; });
    }
  }
}

// Same in turn for keys: those that no row sees receive 0, and a NaN reaches the keys of its rows.
TEST_P(RowPromises, AKeyReceivesNothingFromRowsThatDoNotSeeIt) {
  for (const char* line :
       {"shape=1x2:1x40x300x16 mask=causal:top_left", "shape=1x2x3x300x32 mask=causal:top_left",
        "dt=bf16 shape=1x1x40x300x64 mask=causal:top_left,window=9:0",
        "shape=1x1x40x300x16 mask=causal:top_left bias=1 cap=5"}) {
    Data data(parse_problem(line));
    const Problem& p = data.problem;
    const auto heads = static_cast<std::size_t>(p.heads), keys = static_cast<std::size_t>(p.keys),
               queries = static_cast<std::size_t>(p.queries);
    const ForwardResult clean = run_forward(data);
    // The last queries and the first key they do not see; rows of weight 0 count for nothing.
    for (std::size_t last = queries - 1; last < heads * queries; last += queries) {
      std::fill_n(data.q.begin() + static_cast<std::int64_t>(last) * p.dim, p.dim, kNaN);
      data.row_weights[last] = last + 1 == heads * queries ? 1 : 0;
    }
    std::fill_n(data.k.begin() + p.queries * p.dim, p.dim, kNaN);
    data.refresh();
    const ForwardResult poisoned = run_forward(data);
    const auto view = row_view(data.options().mask, 0, p.queries - 1, p.queries, p.keys).keys;
    for (std::size_t j = 0; j < keys; ++j) {
      const float got = poisoned.received[(heads - 1) * keys + j];
      const auto key = static_cast<std::int64_t>(j);
      const bool is_hidden = p.bias && data.options().bias(0, 0, p.queries - 1, key) == -kInfinity;
      EXPECT_EQ(std::isnan(got), view.holds(key) && !is_hidden) << line << ", key " << j;
      EXPECT_TRUE(j < queries || got == 0) << line << ", key " << j;
      if (view.holds(key)) continue;
      EXPECT_TRUE(same_bits(got, clean.received[(heads - 1) * keys + j])) << line << ", key " << j;
    }
    for (std::size_t j = 0; j < (heads - 1) * keys; ++j)
      EXPECT_TRUE(std::isfinite(poisoned.received[j])) << line << ", key " << j;
  }
}

TEST_P(RowPromises, ANaNKeyMakesTheKeysOfItsRowsNaN) {
  // Rows from 30 on see key 30, and all keys up to their own.
  Data data(parse_problem("shape=1x1x60x60x16 mask=causal:top_left,window=20:0"));
  for (float& weight : data.row_weights) weight = 1;
  std::fill_n(data.k.begin() + 30 * 16, 16, kNaN);
  data.refresh();
  const ForwardResult forward = run_forward(data);
  for (std::size_t j = 0; j < 60; ++j)
    EXPECT_EQ(std::isnan(forward.received[j]), 10 <= j && j <= 50) << j;
}

TEST_P(RowPromises, HiddenKeysAndValuesHaveNoInfluence) {
  // 40 queries at the top left of 300 keys: keys from 40 on are hidden from all.
  for (const float poison : {kNaN, kInfinity, -kInfinity}) {
    for (const auto argument : {&Data::k, &Data::v}) {
      for (const std::size_t key : {40u, 45u, 299u}) {
        for (const char* line : {"shape=1x1x40x300x16 mask=causal:top_left",
                                 "dt=bf16 shape=1x1x40x300x64 mask=causal:top_left"}) {
          expect_poisoned_rows(line, argument, key, poison, [](std::int64_t) { return false; });
        }
      }
    }
  }
}

TEST_P(RowPromises, AnInfiniteLogitMakesTheRowNaN) {
  Data data(parse_problem("shape=1x1x3x5x4"));
  for (std::size_t c = 0; c < 4; ++c) data.q[4 + c] = kInfinity;
  data.refresh();
  const ForwardResult forward = run_forward(data);
  EXPECT_TRUE(std::isnan(forward.lse[1]) && std::isnan(forward.entropy[1]) &&
              std::isnan(forward.output[4]));
  EXPECT_TRUE(std::isfinite(forward.lse[0]) && std::isfinite(forward.lse[2]));
}

TEST_P(RowPromises, ZeroExtentsAreNoOps) {
  for (const char* line : {"shape=0x1x4x4x8", "shape=1x0x4x4x8", "shape=1x1x0x4x8"}) {
    const Data data(parse_problem(line));
    const ForwardResult forward = run_forward(data);
    EXPECT_TRUE(forward.output.empty());
    for (const float value : run_backward(data, forward).dk) EXPECT_EQ(value, 0);
  }
}

// Tensors in memory of twice their size.
template <typename T>
using Layout = View<T, 4> (*)(std::array<std::int64_t, 4> extents, std::vector<T>& memory);

template <typename T>
void make_room(const std::array<std::int64_t, 4>& extents, std::vector<T>& memory) {
  const auto [batch, heads, rows, columns] = extents;
  memory.assign(static_cast<std::size_t>(batch * heads * rows * columns * 2), from_float<T>(kNaN));
}

// Reversed columns with stride -2, rows outermost.
template <typename T>
View<T, 4> scattered(std::array<std::int64_t, 4> extents, std::vector<T>& memory) {
  make_room(extents, memory);
  const auto [batch, heads, rows, columns] = extents;
  View<T, 4> view{memory.data() + (columns - 1) * 2, extents, {}};
  view.strides = {heads * columns * 2, columns * 2, batch * heads * columns * 2, -2};
  return view;
}

// Contiguous rows in reverse order, so that the first element of memory is not the tensor's.
template <typename T>
View<T, 4> backwards(std::array<std::int64_t, 4> extents, std::vector<T>& memory) {
  make_room(extents, memory);
  const auto [batch, heads, rows, columns] = extents;
  View<T, 4> view{memory.data() + 1 + (rows - 1) * columns, extents, {}};
  view.strides = {heads * rows * columns, rows * columns, -columns, 1};
  return view;
}

// Contiguous rows in order.
template <typename T>
View<T, 4> shifted(std::array<std::int64_t, 4> extents, std::vector<T>& memory) {
  make_room(extents, memory);
  return contiguous_view<T, 4>(memory.data() + 1, extents);
}

// Rows outermost, with a gap of one element between heads.
template <typename T>
View<T, 4> apart(std::array<std::int64_t, 4> extents, std::vector<T>& memory) {
  make_room(extents, memory);
  const auto [batch, heads, rows, columns] = extents;
  const std::int64_t row = batch * heads * columns + 1;
  return {memory.data(), extents, {heads * columns, columns, row, 1}};
}

template <typename Visit>
void for_each_index(const std::array<std::int64_t, 4>& extents, const Visit& visit) {
  for (std::int64_t b = 0; b < extents[0]; ++b) {
    for (std::int64_t h = 0; h < extents[1]; ++h) {
      for (std::int64_t r = 0; r < extents[2]; ++r) {
        for (std::int64_t c = 0; c < extents[3]; ++c) visit(b, h, r, c);
      }
    }
  }
}

// Tensors of a problem with other strides, and their memory.
template <typename T>
class LaidOut {
 public:
  explicit LaidOut(Layout<T> lay_out) : lay_out_(lay_out) {}

  template <typename Number>
  View<T, 4> copy_of(const std::vector<Number>& values, std::array<std::int64_t, 4> extents) {
    if (values.empty()) return {};
    const View<T, 4> view = room(extents);
    const auto from = contiguous_view<const Number, 4>(values.data(), extents);
    for_each_index(
        extents, [&](auto... at) { view(at...) = from_float<T>(static_cast<float>(from(at...))); });
    return view;
  }
  View<T, 4> room(std::array<std::int64_t, 4> extents) {
    return lay_out_(extents, memory_.emplace_back());
  }

 private:
  Layout<T> lay_out_;
  std::deque<std::vector<T>> memory_;
};

template <typename T>
void expect_numbers(const View<T, 4>& got, const std::vector<float>& want) {
  std::size_t at = 0;
  for_each_index(got.extents, [&](auto... index) {
    ASSERT_TRUE(same_bits(to_float(got(index...)), want[at++]));
  });
}

// The same of the tangent pass and the second-order pass. input: of the problem, laid out.
template <typename T>
void expect_the_bits_of_contiguous_tangents(const Data& data, const AttentionInput& input,
                                            const ForwardResult& forward, Layout<T> lay_out) {
  const Problem& p = data.problem;
  const std::array<std::int64_t, 4> outputs = {p.batch, p.heads, p.queries, p.value_dim};
  const check::Tensors tangents = check::random_tangents(p);
  const check::TangentResult want = run_tangent(data, forward, tangents);
  const reference::GradientInput upstream{.d_output = random_gradient(p).d_output};
  const BackwardResult gradients = run_second_order(data, forward, tangents, want, upstream);
  LaidOut<T> tensors(lay_out);
  const auto lse = [&](const std::vector<float>& values) {
    return ConstRowStatistics{
        .lse = contiguous_view<const float, 3>(values.data(), {p.batch, p.heads, p.queries})};
  };
  AttentionSecondOrderInput in{.output = tensors.copy_of(forward.output, outputs),
                               .statistics = lse(forward.lse),
                               .output_tangent = tensors.copy_of(want.output, outputs),
                               .statistic_tangents = lse(want.statistics.lse),
                               .d_output = tensors.copy_of(upstream.d_output, outputs)};
  in.tangents.q = tensors.copy_of(tangents.q, input.q.extents);
  in.tangents.k = tensors.copy_of(tangents.k, input.k.extents);
  in.tangents.v = tensors.copy_of(tangents.v, input.v.extents);
  const View<T, 4> tangent = tensors.room(outputs), dq = tensors.room(input.q.extents),
                   dk = tensors.room(input.k.extents), dv = tensors.room(input.v.extents);
  attention_tangent(input, data.options(),
                    {.output = in.output, .statistics = in.statistics, .tangents = in.tangents},
                    {tangent, {}});
  expect_numbers(tangent, want.output);
  attention_second_order(input, data.options(), in, {dq, dk, dv});
  expect_numbers(dq, gradients.dq);
  expect_numbers(dk, gradients.dk);
  expect_numbers(dv, gradients.dv);
}

template <typename T>
void expect_the_bits_of_contiguous_tensors(const char* line, Layout<T> lay_out = scattered<T>) {
  SCOPED_TRACE(line);
  const Data data(parse_problem(line));
  const Problem& p = data.problem;
  const ForwardResult want = run_forward(data);
  LaidOut<T> tensors(lay_out);
  std::vector<T> output;
  const AttentionInput input{tensors.copy_of(data.q, {p.batch, p.heads, p.queries, p.dim}),
                             tensors.copy_of(data.k, {p.batch, p.kv_heads, p.keys, p.dim}),
                             tensors.copy_of(data.v, {p.batch, p.kv_heads, p.keys, p.value_dim})};
  const std::array<std::int64_t, 4> extents{p.batch, p.heads, p.queries, p.value_dim};
  const View<T, 4> to = lay_out(extents, output);
  AttentionOutput out{to, {}};
  StatisticFields<std::vector<float>, std::vector<std::int64_t>> every_other;
  const auto rows = static_cast<std::size_t>(p.batch * p.heads * p.queries);
  for_each_statistic(
      [&]<typename Number>(const Statistic&, std::vector<Number>& memory, View<Number, 3>& view) {
        memory.assign(2 * rows, Number{-77});
        const std::int64_t step = 2 * p.queries;
        view = {memory.data(), {p.batch, p.heads, p.queries}, {p.heads * step, step, 2}};
      },
      every_other, out.statistics);
  attention_forward(input, data.options(), out);
  for_each_statistic(
      [&](const Statistic& statistic, const auto& got, const auto& wanted) {
        for (std::size_t row = 0; row < rows; ++row) {
          ASSERT_EQ(got[2 * row], wanted[row]) << statistic.name << " of row " << row;
          ASSERT_EQ(got[2 * row + 1], -77) << statistic.name;
        }
      },
      every_other, want);
  expect_numbers(to, want.output);
  // The other half must stay untouched.
  const auto untouched = std::count_if(output.begin(), output.end(),
                                       [](T value) { return std::isnan(to_float(value)); });
  EXPECT_EQ(static_cast<std::size_t>(untouched), output.size() / 2);
  expect_the_bits_of_contiguous_tangents(data, input, want, lay_out);
}

TEST_P(RowPromises, AnyStridesGiveTheSameBits) {
  expect_the_bits_of_contiguous_tensors<float>("shape=2x3x30x70x12:20 mask=causal:bottom_right");
  expect_the_bits_of_contiguous_tensors<float>(
      "shape=2x3x30x72x12:20");  // keys may be read in place
  // Few rows, which are not packed; and numbers supported by bf16 dot products.
  expect_the_bits_of_contiguous_tensors<float>("shape=2x2x3x300x32");
  expect_the_bits_of_contiguous_tensors<BFloat16>("dt=bf16 shape=1x2x30x70x64");
  expect_the_bits_of_contiguous_tensors<BFloat16>("dt=bf16 shape=1x2x31x72x64");
  expect_the_bits_of_contiguous_tensors<BFloat16>("dt=bf16 shape=1x2x3x300x64");
  for (const auto lay_out : {backwards<BFloat16>, shifted<BFloat16>, apart<BFloat16>}) {
    expect_the_bits_of_contiguous_tensors("dt=bf16 shape=1x2x31x72x64", lay_out);
    expect_the_bits_of_contiguous_tensors("dt=bf16 shape=1x2x3x300x64", lay_out);
  }
  for (const auto lay_out : {backwards<float>, shifted<float>})
    expect_the_bits_of_contiguous_tensors("shape=2x3x30x72x12:20", lay_out);
  expect_the_bits_of_contiguous_tensors("shape=2x16x30x72x16", apart<float>);  // 2 KB and more
}

TEST_P(RowPromises, WithoutAGradientOfTheOutputThoseOfStatisticsRemain) {
  for (const char* line : {"shape=2x4:2x40x70x8 mask=causal:bottom_right sink=1 lambda=1",
                           "dt=bf16 shape=1x2x30x70x64 bias=1", "dt=f16 shape=1x2x30x70x24"}) {
    const Data data(parse_problem(line));
    reference::GradientInput gradient = random_gradient(data.problem);
    const auto expect_within_budget = [&] {
      const BackwardResult got = check::run_backward(data, run_forward(data), gradient);
      const Ratio ratio = backward_error_over_budget(data, gradient, got);
      EXPECT_LE(ratio.worst, 1) << line << ": " << ratio.where;
      EXPECT_NE(got.dq, std::vector<float>(got.dq.size()));
    };
    gradient.d_output.clear();
    expect_within_budget();
    gradient.d_statistics.max_probability.clear();
    expect_within_budget();
  }
}

TEST_P(RowPromises, BitsDoNotDependOnTheThreads) {
  const Data data(parse_problem("shape=2x2x400x1200x16 mask=causal:bottom_right rule=log_length"));
  const ParallelFor backwards_on_two_threads = [](std::int64_t tasks, const auto& body) {
    std::thread odd([&] {
      for (std::int64_t task = tasks - 1; task >= 0; --task)
        if (task % 2) body(task);
    });
    for (std::int64_t task = tasks - 1; task >= 0; --task)
      if (task % 2 == 0) body(task);
    odd.join();
  };
  const ForwardResult one = run_forward(data), two = run_forward(data, backwards_on_two_threads);
  EXPECT_EQ(one.output, two.output);
  EXPECT_EQ(one.entropy, two.entropy);
  EXPECT_EQ(one.received, two.received);
  const auto gradient = random_gradient(data.problem);
  const BackwardResult a = check::run_backward(data, one, gradient);
  const BackwardResult b = check::run_backward(data, one, gradient, backwards_on_two_threads);
  EXPECT_EQ(a.dq, b.dq);
  EXPECT_EQ(a.dk, b.dk);
  EXPECT_EQ(a.dv, b.dv);
}

TEST(AttentionErrors, NameTheArgumentAndLeaveOutputsUntouched) {
  const Data data(parse_problem("shape=1x2x3x4x8"));
  std::vector<float> output(1 * 2 * 3 * 8, 7.0f);
  AttentionInput input = data.input();
  const AttentionOutput out{contiguous_view<float, 4>(output.data(), {1, 2, 3, 8}), {}};
  const auto message = [&] {
    try {
      attention_forward(input, {}, out);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  input.k.extents[1] = 1;
  EXPECT_EQ(message(), "[attention] v must have shape [1, 1, 4, 8]; got [1, 2, 4, 8]");
  input = data.input();
  input.q.data = nullptr;
  EXPECT_EQ(message(), "[attention] q must have data; got a null pointer");
  input = data.input();
  input.q.extents[3] = 0;
  EXPECT_EQ(message(), "[attention] q must have a head dimension of at least 1; got [1, 2, 3, 0]");
  for (const float value : output) EXPECT_EQ(value, 7.0f);
}

TEST(Target, AnUnknownNameSaysWhichThereAre) {
  try {
    use_target("AVX9");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(supported_targets().front()), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace isentrope::check
