// Sequences of a paged cache with their own numbers of keys and of packed queries, and
// write_cache().

#include "src/call/sequences.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "isentrope/write_cache.h"
#include "tests/support/list_of.h"
#include "tests/support/on_target.h"
#include "tests/support/refusals.h"
#include "tests/support/same_bits.h"
#include "tools/check/run.h"

namespace isentrope::check {
namespace {

// Decode steps, chunks and prompts; the long cache is split.
constexpr const char* kLines[] = {
    "shape=1x4:2x9x300x32 pages=16 sequences=4 mask=causal:bottom_right rule=log_length sink=1",
    "dt=bf16 shape=1x4:2x170x500x16 pages=7 sequences=5 mask=causal:bottom_right,window=60:0",
    "shape=1x2:1x7x9000x16 pages=64 sequences=3 mask=prefix=30,left_padding",
    "dt=f16 shape=1x2x40x90x24 pages=9 sequences=6 bias=1 admitted=1 lambda=1"};

class Sequences : public TargetTest {};
ISENTROPE_ON_EVERY_TARGET(Sequences);

// The forward pass by a call for each sequence, which knows nothing of the others.
Passes alone() {
  return {.forward = [](const AttentionInput& in, const AttentionOptions& options,
                        const AttentionOutput& out) {
    for (std::int64_t s = 0; s < in.sequences(); ++s) {
      const auto [input, its_options, output] = sequence_of(in, options, out, s);
      attention_forward(input, its_options, {output.output, output.statistics});
    }
  }};
}

TEST_P(Sequences, EachHasTheBitsThatItHasAloneForAnyThreads) {
  const auto backwards = [](std::int64_t tasks, const auto& body) {
    for (std::int64_t task = tasks; task-- > 0;) body(task);
  };
  for (const char* line : kLines) {
    SCOPED_TRACE(line);
    const Data data(parse_problem(line));
    const ForwardResult want = run_forward(data, data.options(), alone());
    for (const ParallelFor& threads :
         {ParallelFor(run_serially), ParallelFor(run_on_pool), ParallelFor(backwards)}) {
      const ForwardResult got = run_forward(data, data.options(threads));
      expect_same_bits(got.output, want.output);
      expect_same_statistics(got, want);
    }
  }
}

// Packed queries of one each are a batch of decode steps.
TEST_P(Sequences, ABatchHasItsOwnLengthsToo) {
  const Data data(parse_problem(
      "shape=3x4:2x1x200x16 pages=16 mask=causal:bottom_right,window=50:0 rule=log_length"));
  const std::vector<std::int64_t> used = {200, 17, 0}, starts = {0, 1, 2, 3};
  std::vector<float> batch(3 * 4 * 16, -77), packed(batch.size(), -77);
  AttentionInput in = data.input();
  in.pages.seqused_k = list_of(used);
  attention_forward(in, data.options(), {contiguous_view<float, 4>(batch.data(), {3, 4, 1, 16})});
  // The same memory as one batch of three queries.
  in.q.extents = {1, 4, 3, 16};
  in.q.strides = {3 * 64, 16, 64, 1};
  in.pages.cu_seq_q = list_of(starts);
  Tensor output = contiguous_view<float, 4>(packed.data(), {3, 4, 1, 16});
  output.extents = in.q.extents;
  output.strides = in.q.strides;
  attention_forward(in, data.options(), {output});
  EXPECT_EQ(batch, packed);
  EXPECT_NE(batch[0], batch[64]);
  EXPECT_EQ(batch.back(), 0);  // without keys
}

TEST(SequenceErrors, NameTheArgument) {
  const std::vector<std::int64_t> many = {10, 9}, negative = {9, -1}, back = {0, 6, 5},
                                  two = {0, 5};
  const std::string used =
      "seqused_k must be at least 0 and at most 9, the keys that a sequence has pages for; got ";
  expect_refusals(
      "shape=1x2x5x9x8 pages=4 sequences=2",
      {{used + "10", [&](auto& in, auto&) { in.pages.seqused_k = list_of(many); }},
       {used + "-1", [&](auto& in, auto&) { in.pages.seqused_k = list_of(negative); }},
       {"cu_seq_q must never decrease; got 6 before 5",
        [&](auto& in, auto&) { in.pages.cu_seq_q = list_of(back); }},
       {"cu_seq_q must have shape [3]; got [2]",
        [&](auto& in, auto&) { in.pages.cu_seq_q = list_of(two); }},
       {"block_table must be given with seqused_k and with cu_seq_q; got none",
        [](auto& in, auto&) {
          in.pages.block_table = {}, in.pages.keys = 0;
          in.k.extents[0] = in.v.extents[0] = 1;
        }},
       {"dropout_p must be 0 with seqused_k and with cu_seq_q; got 0.500000",
        [](auto&, auto& o) { o.dropout_p = 0.5f; }},
       {"sequence_keys must be 0 with seqused_k and with cu_seq_q; got 99",
        [](auto&, auto& o) { o.mask.sequence_keys = 99; }},
       {"q must have a batch of 1 with cu_seq_q; got [2, 2, 5, 8]",
        [](auto& in, auto&) { in.q.extents[0] = 2; }},
       {"cu_seqlens_q must be absent with seqused_k and with cu_seq_q; got one",
        [&](auto&, auto& o) { o.mask.cu_seqlens_q = o.mask.cu_seqlens_k = list_of(two); }},
       {"key_end must have shape [2]; got [3]",
        [&](auto&, auto& o) { o.mask.key_end = list_of(back); }}});
}

// A page past a sequence's keys may have any number.
TEST(SequenceErrors, PagesWithoutKeysAreNotRead) {
  const Data data(parse_problem("shape=1x2x5x90x8 pages=4 sequences=3"));
  const AttentionInput in = data.input();
  std::vector<std::int32_t> table;
  for (std::int64_t s = 0; s < 3; ++s) {
    for (std::int64_t page = 0; page < in.pages.block_table.extents[1]; ++page)
      table.push_back(page * 4 < keys_of(in, s) ? in.pages.block_table(s, page) : -1);
  }
  ASSERT_NE(std::count(table.begin(), table.end(), -1), 0);
  std::vector<float> output(2 * 5 * 8);
  AttentionInput other = in;
  other.pages.block_table =
      contiguous_view<const std::int32_t, 2>(table.data(), in.pages.block_table.extents);
  attention_forward(other, data.options(),
                    {contiguous_view<float, 4>(output.data(), {1, 2, 5, 8})});
  EXPECT_EQ(output, run_forward(data).output);
}

template <typename T>
struct Cache {
  std::vector<T> k = std::vector<T>(3 * 2 * 4 * 5), v = std::vector<T>(3 * 2 * 4 * 7);
  View<T, 4> keys = contiguous_view<T, 4>(k.data(), {3, 2, 4, 5});
  View<T, 4> values = contiguous_view<T, 4>(v.data(), {3, 2, 4, 7});
};

template <typename T>
class WriteCache : public ::testing::Test {};
using Numbers = ::testing::Types<float, BFloat16, Float16>;
TYPED_TEST_SUITE(WriteCache, Numbers);

TYPED_TEST(WriteCache, PutsEachTokenInItsSlot) {
  using T = TypeParam;
  const std::vector<std::int64_t> slots = {11, -1, 4, 0, 4};
  // [token][head][column], as a projection leaves them.
  std::vector<T> k(5 * 2 * 5), v(5 * 2 * 7);
  for (std::size_t i = 0; i < k.size(); ++i) k[i] = from_float<T>(static_cast<float>(i + 1));
  for (std::size_t i = 0; i < v.size(); ++i) v[i] = from_float<T>(static_cast<float>(i + 101));
  const View<const T, 4> keys{k.data(), {1, 2, 5, 5}, {0, 5, 10, 1}};
  const View<const T, 4> values{v.data(), {1, 2, 5, 7}, {0, 7, 14, 1}};
  const auto write = [&](Cache<T>& cache) {
    write_cache(keys, values, Tensor(cache.keys), Tensor(cache.values), list_of(slots));
  };
  Cache<T> cache, strided;
  write(cache);
  // With columns outside rows: element by element.
  strided.keys.strides = {40, 20, 1, 4};
  strided.values.strides = {56, 28, 1, 4};
  write(strided);
  for (std::int64_t slot = 0; slot < 12; ++slot) {
    const std::int64_t token = slot == 11 ? 0 : slot == 4 ? 4 : slot == 0 ? 3 : -1;
    for (std::int64_t head = 0; head < 2; ++head) {
      for (std::int64_t c = 0; c < 7; ++c) {
        const float value = token < 0 ? 0 : to_float(values(0, head, token, c));
        EXPECT_EQ(to_float(cache.values(slot / 4, head, slot % 4, c)), value);
        EXPECT_EQ(to_float(strided.values(slot / 4, head, slot % 4, c)), value);
        if (c >= 5) continue;
        const float key = token < 0 ? 0 : to_float(keys(0, head, token, c));
        EXPECT_EQ(to_float(cache.keys(slot / 4, head, slot % 4, c)), key);
        EXPECT_EQ(to_float(strided.keys(slot / 4, head, slot % 4, c)), key);
      }
    }
  }
}

TEST(WriteCacheErrors, NameTheArgumentAndLeaveTheCacheUntouched) {
  Cache<float> cache;
  const std::vector<float> k(2 * 2 * 5, 1), v(2 * 2 * 7, 1);
  const std::vector<std::int64_t> slots = {0, 11};
  const auto message = [&](std::vector<std::int64_t> at, std::int64_t tokens, DType type) {
    auto keys = ConstTensor(contiguous_view<const float, 4>(k.data(), {1, 2, tokens, 5}));
    keys.type = type;
    return message_of([&] {
      write_cache(keys, contiguous_view<const float, 4>(v.data(), {1, 2, 2, 7}), Tensor(cache.keys),
                  Tensor(cache.values), list_of(at));
    });
  };
  EXPECT_EQ(message({0, 12}, 2, DType::f32),
            "[write_cache] slot_mapping must hold slots of the 3 pages of 4 keys; got 12");
  EXPECT_EQ(message(slots, -1, DType::f32),
            "[write_cache] k must have no negative extent; got [1, 2, -1, 5]");
  EXPECT_EQ(message(slots, 1, DType::f32),
            "[write_cache] v must have shape [1, 2, 1, 7]; got [1, 2, 2, 7]");
  EXPECT_EQ(message(slots, 2, DType::i8), "[write_cache] k must be f32, bf16 or f16; got i8");
  EXPECT_EQ(message(slots, 2, DType::bf16), "[write_cache] v must be bf16, as k is; got f32");
  const auto part = contiguous_view<const float, 4>(cache.v.data(), {1, 2, 2, 5});
  EXPECT_EQ(message_of([&] {
              write_cache(part, contiguous_view<const float, 4>(v.data(), {1, 2, 2, 7}),
                          Tensor(cache.keys), Tensor(cache.values), list_of(slots));
            }),
            "[write_cache] v_cache must not overlap another array, because it is written; got "
            "memory of k");
  EXPECT_EQ(std::accumulate(cache.k.begin(), cache.k.end(), 0.0f), 0);
}

}  // namespace
}  // namespace isentrope::check
