// Memory access of the kernels: within the views, at any address, at offsets beyond 2^31 elements.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>

#include "tests/support/guarded_memory.h"
#include "tests/support/on_target.h"
#include "tools/check/run.h"

namespace isentrope::check {
namespace {

class MemoryBounds : public TargetTest {};
ISENTROPE_ON_EVERY_TARGET(MemoryBounds);

template <std::size_t Rank>
std::size_t count_of(const std::array<std::int64_t, Rank>& extents) {
  std::int64_t count = 1;
  for (const std::int64_t extent : extents) count *= extent;
  return static_cast<std::size_t>(count);
}

// Copies of a call's arrays and memory for its results, each between forbidden pages.
class Guarded {
 public:
  explicit Guarded(Flush flush) : flush_(flush) {}

  template <typename T, std::size_t Rank>
  void move(View<const T, Rank>& view) {
    if (view)
      view.data = static_cast<const T*>(copy(view.data, count_of(view.extents) * sizeof(T)));
  }
  void move(ConstTensor& tensor) {
    if (!tensor) return;
    tensor.data = copy(tensor.data,
                       count_of(tensor.extents) * static_cast<std::size_t>(size_of(tensor.type)));
  }
  template <typename T, std::size_t Rank>
  View<T, Rank> room(const std::array<std::int64_t, Rank>& extents) {
    return contiguous_view<T, Rank>(static_cast<T*>(take(count_of(extents) * sizeof(T))), extents);
  }
  Tensor room(DType type, const std::array<std::int64_t, 4>& extents) {
    const auto view = contiguous_view<float, 4>(nullptr, extents);
    return {take(count_of(extents) * static_cast<std::size_t>(size_of(type))), type, extents,
            view.strides};
  }
  void expect_untouched_slack() const {
    for (const GuardedMemory& memory : memories_) EXPECT_TRUE(memory.slack_is_untouched());
  }

 private:
  void* take(std::size_t bytes) { return memories_.emplace_back(bytes, flush_).data(); }
  void* copy(const void* from, std::size_t bytes) {
    void* to = take(bytes);
    if (bytes > 0) std::memcpy(to, from, bytes);
    return to;
  }

  Flush flush_;
  std::deque<GuardedMemory> memories_;
};

struct Call {
  AttentionInput in;
  AttentionOptions options;
};

Call guarded_call(const Data& data, Guarded& guarded) {
  Call call{data.input(), data.options()};
  guarded.move(call.in.q);
  guarded.move(call.in.k);
  guarded.move(call.in.v);
  guarded.move(call.in.pages.block_table);
  guarded.move(call.options.attn_mask);
  guarded.move(call.options.bias);
  guarded.move(call.options.bias_slopes);
  guarded.move(call.options.sinks);
  guarded.move(call.options.lambda);
  guarded.move(call.options.mask.key_begin);
  guarded.move(call.options.mask.key_end);
  guarded.move(call.options.mask.cu_seqlens_q);
  guarded.move(call.options.mask.cu_seqlens_k);
  return call;
}

// Compares a guarded result with that of a run on the heap: the address must not matter.
void expect_same(const char* name, const Tensor& tensor, const std::vector<float>& want) {
  for (std::size_t i = 0; i < want.size(); ++i) {
    const float got = tensor.type == DType::f32 ? static_cast<const float*>(tensor.data)[i]
                      : tensor.type == DType::bf16
                          ? to_float(static_cast<const BFloat16*>(tensor.data)[i])
                          : to_float(static_cast<const Float16*>(tensor.data)[i]);
    ASSERT_EQ(got, want[i]) << name << "[" << i << "]";
  }
}
void expect_same(const char* name, const float* got, const std::vector<float>& want) {
  for (std::size_t i = 0; i < want.size(); ++i)
    ASSERT_EQ(got[i], want[i]) << name << "[" << i << "]";
}

void expect_within_bounds(const Problem& p, Flush flush) {
  const Data data(p);
  Guarded guarded(flush);
  const Call call = guarded_call(data, guarded);
  const std::array<std::int64_t, 3> rows = {p.batch, p.heads, p.queries};
  RowStatistics statistics;
  for_each_statistic(
      [&]<typename T>(const Statistic&, View<T, 3>& view) { view = guarded.room<T>(rows); },
      statistics);
  const Tensor output = guarded.room(p.type, {p.batch, p.heads, p.queries, p.value_dim});
  attention_forward(call.in, call.options, {output, statistics});
  const ForwardResult want = run_forward(data);
  expect_same("output", output, want.output);
  expect_same("entropy", statistics.entropy.data, want.entropy);
  guarded.expect_untouched_slack();
  if (p.page_size > 0) return;

  const reference::GradientInput upstream = random_gradient(p);
  ConstRowStatistics d_statistics;
  for_each_statistic(
      [&]<typename T>(const Statistic& statistic, const std::vector<double>& values,
                      View<const T, 3>& view) {
        if (!statistic.differentiable()) return;
        const auto room = guarded.room<T>(rows);
        std::copy(values.begin(), values.end(), room.data);
        view = room;
      },
      upstream.d_statistics, d_statistics);
  const auto d_output = guarded.room<float, 4>(output.extents);  // f32, which every type supports
  std::copy(upstream.d_output.begin(), upstream.d_output.end(), d_output.data);
  const AttentionGradients to{guarded.room(p.type, call.in.q.extents),
                              guarded.room(p.type, call.in.k.extents),
                              guarded.room(p.type, call.in.v.extents),
                              guarded.room<float, 4>({p.batch, p.heads, p.queries, p.keys}),
                              guarded.room<float>(rows),
                              guarded.room<float, 1>({p.heads})};
  attention_backward(call.in, call.options, {output, as_const(statistics), d_output, d_statistics},
                     to);
  const BackwardResult gradient = run_backward(data, want, upstream);
  expect_same("dq", to.dq, gradient.dq);
  expect_same("dk", to.dk, gradient.dk);
  expect_same("dv", to.dv, gradient.dv);
  expect_same("d_bias", to.d_bias.data, gradient.d_bias);
  expect_same("d_lambda", to.d_lambda.data, gradient.d_lambda);
  guarded.expect_untouched_slack();
}

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
    for (const Flush flush : {Flush::left, Flush::right}) {
      SCOPED_TRACE(line);
      expect_within_bounds(parse_problem(line), flush);
      if (HasFatalFailure()) return;
    }
  }
}

// Views of [1, 2, rows, 4] and [1, 2, 2, 3]: rows 2^31 + 8 elements apart, past 2^31 and 2^32.
class FarViews {
 public:
  View<float, 4> rows(std::int64_t count) {
    constexpr std::int64_t kHead = 256;
    const auto elements = static_cast<std::size_t>(count * kStep + 2 * kHead);
    return {memory<float>(elements), {1, 2, count, 4}, {0, kHead, kStep, 1}};
  }

  template <typename T>
  View<T, 4> pairs() {
    return {memory<T>(std::size_t{3} * kStep), {1, 2, 2, 3}, {0, 2, 1, kStep}};
  }

  bool all_given() const {
    return std::all_of(memories_.begin(), memories_.end(),
                       [](const SparseMemory& memory) { return memory.data() != nullptr; });
  }

 private:
  static constexpr std::int64_t kStep = (std::int64_t{1} << 31) + 8;

  template <typename T>
  T* memory(std::size_t elements) {
    return reinterpret_cast<T*>(memories_.emplace_back(elements * sizeof(T)).data());
  }

  std::deque<SparseMemory> memories_;
};

template <typename Visit>
void for_each_element(const View<float, 4>& view, const Visit& visit) {
  std::size_t at = 0;
  for (std::int64_t h = 0; h < 2; ++h) {
    for (std::int64_t r = 0; r < view.extents[2]; ++r) {
      for (std::int64_t c = 0; c < 4; ++c) visit(view(0, h, r, c), at++);
    }
  }
}

TEST_P(MemoryBounds, OffsetsBeyondTwoToThe31AreRight) {
  const Data data(parse_problem("shape=1x2x2x3x4 admitted=1 bias=1 mask=causal:bottom_right"));
  const ForwardResult want = run_forward(data);
  const reference::GradientInput upstream = random_gradient(data.problem);
  const BackwardResult want_gradient = run_backward(data, want, upstream);
  FarViews far;
  const View<float, 4> q = far.rows(2), k = far.rows(3), v = far.rows(3), output = far.rows(2),
                       d_output = far.rows(2), dq = far.rows(2), dk = far.rows(3), dv = far.rows(3);
  View<float, 4> bias = far.pairs<float>();
  View<std::uint8_t, 4> mask = far.pairs<std::uint8_t>();
  if (!far.all_given()) GTEST_SKIP() << "the system refuses that much address space";
  for_each_element(q, [&](float& x, std::size_t i) { x = data.q[i]; });
  for_each_element(k, [&](float& x, std::size_t i) { x = data.k[i]; });
  for_each_element(v, [&](float& x, std::size_t i) { x = data.v[i]; });
  for_each_element(d_output,
                   [&](float& x, std::size_t i) { x = static_cast<float>(upstream.d_output[i]); });
  AttentionOptions options = data.options();
  for (std::int64_t i = 0; i < 12; ++i) {
    bias(0, i / 6, i / 3 % 2, i % 3) = options.bias(0, i / 6, i / 3 % 2, i % 3);
    mask(0, i / 6, i / 3 % 2, i % 3) = options.attn_mask(0, i / 6, i / 3 % 2, i % 3);
  }
  options.bias = bias;
  options.attn_mask = mask;

  attention_forward({q, k, v}, options, {output, {}});
  for_each_element(output, [&](float x, std::size_t i) { EXPECT_EQ(x, want.output[i]); });
  AttentionGradientInput gradient{.output = output, .d_output = d_output};
  StatisticFields<std::vector<float>, std::vector<std::int64_t>> d_statistics;
  for_each_statistic(
      []<typename T>(const Statistic& statistic, const std::vector<T>& result,
                     const std::vector<double>& values, std::vector<T>& d,
                     View<const T, 3>& result_view, View<const T, 3>& d_view) {
        result_view = contiguous_view<const T, 3>(result.data(), {1, 2, 2});
        if (!statistic.differentiable()) return;
        d.assign(values.begin(), values.end());
        d_view = contiguous_view<const T, 3>(d.data(), {1, 2, 2});
      },
      want, upstream.d_statistics, d_statistics, gradient.statistics, gradient.d_statistics);
  attention_backward({q, k, v}, options, gradient, {dq, dk, dv});
  for_each_element(dq, [&](float x, std::size_t i) { EXPECT_EQ(x, want_gradient.dq[i]); });
  for_each_element(dk, [&](float x, std::size_t i) { EXPECT_EQ(x, want_gradient.dk[i]); });
  for_each_element(dv, [&](float x, std::size_t i) { EXPECT_EQ(x, want_gradient.dv[i]); });
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
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(count_of(view.extents)); ++i) {
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
