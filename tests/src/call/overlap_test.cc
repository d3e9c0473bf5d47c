// Overlapping arrays: refused by name if one is written, and accepted if they only interleave.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "isentrope/isentrope.h"
#include "src/call/array_overlaps.h"
#include "tests/support/words.h"

namespace isentrope {
namespace {

using Shape = std::array<std::int64_t, 4>;

struct Strided {
  std::int64_t offset;  // in bytes
  std::int64_t size;
  std::vector<std::int64_t> extents, strides;

  [[nodiscard]] MemoryRange range() const {
    return {reinterpret_cast<const char*>(std::uintptr_t{1} << 40) + offset, size, extents,
            strides};
  }
  // Returns all bytes, and whether no two elements share one.
  [[nodiscard]] std::pair<std::set<std::int64_t>, bool> bytes() const {
    std::set<std::int64_t> found;
    std::int64_t count = 1;
    for (const std::int64_t extent : extents) count *= extent;
    for (std::int64_t i = 0; i < count; ++i) {
      std::int64_t at = offset, rest = i;
      for (std::size_t axis = 0; axis < extents.size(); ++axis) {
        at += rest % extents[axis] * strides[axis] * size;
        rest /= extents[axis];
      }
      for (std::int64_t byte = 0; byte < size; ++byte) found.insert(at + byte);
    }
    return {found, static_cast<std::int64_t>(found.size()) == count * size};
  }
};

Strided random_array(std::mt19937& random) {
  const auto below = [&](std::int64_t n) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n));
  };
  Strided array{below(40), below(2) == 0 ? 2 : 4, {}, {}};
  for (std::int64_t rank = 1 + below(3); rank > 0; --rank) {
    array.extents.push_back(below(4));
    array.strides.push_back(below(25) - 8);
  }
  return array;
}

TEST(ArrayOverlaps, NeverMissASharedByte) {
  std::mt19937 random(1);
  int met = 0, apart = 0, certain = 0;
  for (int i = 0; i < 200000; ++i) {
    const Strided a = random_array(random), b = random_array(random);
    const auto [ours, distinct] = a.bytes();
    const auto theirs = b.bytes().first;
    const bool shared = std::ranges::any_of(ours, [&](auto byte) { return theirs.contains(byte); });
    const bool overlaps = a.range().overlaps(b.range());
    EXPECT_EQ(overlaps, b.range().overlaps(a.range()));
    if (shared) {
      ASSERT_TRUE(overlaps) << "array " << i;
    }
    if (!ours.empty() && a.range().has_distinct_elements()) {
      const bool broadcast = [&] {
        for (std::size_t axis = 0; axis < a.extents.size(); ++axis) {
          if (a.extents[axis] > 1 && a.strides[axis] == 0) return true;
        }
        return false;
      }();
      ASSERT_TRUE(distinct || broadcast) << "array " << i;
    }
    met += shared;
    apart += !shared;
    certain += !overlaps;
  }
  EXPECT_GT(met, 10000);
  EXPECT_GT(certain, apart / 2) << "of those apart, most are known to be";
}

TEST(ArrayOverlaps, TellInterleavedArraysApart) {
  // Views [batch, heads, rows, dim] of [batch, rows, q | k | v, heads, dim], and of an order with
  // the three parts inside the heads.
  const std::vector<std::int64_t> extents = {2, 3, 5, 4};
  for (const auto& [strides, apart] :
       {std::pair{std::vector<std::int64_t>{180, 4, 36, 1}, std::int64_t{12}},
        std::pair{std::vector<std::int64_t>{180, 12, 36, 1}, std::int64_t{4}}}) {
    for (std::int64_t first = 0; first < 3; ++first) {
      for (std::int64_t second = 0; second < 3; ++second) {
        const Strided a{first * apart * 4, 4, extents, strides},
            b{second * apart * 4, 4, extents, strides};
        EXPECT_EQ(a.range().overlaps(b.range()), first == second);
      }
    }
  }
}

TEST(ArrayOverlaps, RefuseWhatAddressesDoNotReach) {
  const std::vector<std::int64_t> extents = {1 << 20, 2};
  for (const std::int64_t stride : {std::int64_t{1} << 60, INT64_MAX, INT64_MIN})
    EXPECT_FALSE((Strided{0, 4, extents, {stride, 1}}.range().is_reachable()));
  EXPECT_TRUE((Strided{0, 4, {1, 2}, {INT64_MAX, 1}}.range().is_reachable()))
      << "a stride along a single element leads nowhere";
}

// Through the C interface. All arrays are parts of one memory, separate unless a test moves one.
class Call : public testing::Test {
 protected:
  static constexpr std::int64_t kHeads = 2, kRows = 3, kDim = 4, kElements = kHeads * kRows * kDim,
                                kAll = kHeads * kRows;

  isentrope_array tensor() { return next({1, kHeads, kRows, kDim}, 4, kElements); }
  isentrope_array row() { return next({1, kHeads, kRows, 0}, 3, kAll); }

  isentrope_forward_call forward() {
    isentrope_forward_call call{};
    call.struct_size = sizeof call;
    call.q = tensor(), call.k = tensor(), call.v = tensor(), call.output = tensor();
    statistics_.lse = row(), statistics_.entropy = row();
    call.statistics = &statistics_;
    return call;
  }

  isentrope_backward_call backward() {
    isentrope_backward_call call{};
    call.struct_size = sizeof call;
    call.q = tensor(), call.k = tensor(), call.v = tensor();
    call.output = tensor(), statistics_.lse = row(), call.d_output = tensor();
    call.statistics = &statistics_;
    call.dq = tensor(), call.dk = tensor(), call.dv = tensor(), call.d_lambda = row();
    return call;
  }

  void expect_refused(const isentrope_forward_call& call, const std::string& words) {
    expect_refused(isentrope_forward(options_, &call), words);
  }
  void expect_refused(const isentrope_backward_call& call, const std::string& words) {
    expect_refused(isentrope_backward(options_, &call), words);
  }
  template <typename Made>
  void expect_overlap(const Made& call, const std::string& written, const std::string& other) {
    expect_refused(call, written +
                             " must not overlap another array, because it is written; got "
                             "memory of " +
                             other);
  }

  Call() {
    statistics_.struct_size = sizeof statistics_;
    for (std::size_t i = 0; i < memory_.size(); ++i)
      memory_[i] = std::sin(static_cast<float>(i * i));
    before_ = memory_;
  }
  ~Call() override { isentrope_options_destroy(options_); }

  isentrope_options* options_ = isentrope_options_create();
  isentrope_statistics statistics_{};

 private:
  isentrope_array next(const Shape& shape, std::int32_t rank, std::int64_t elements) {
    used_ += elements;
    return isentrope_array_contiguous(memory_.data() + used_ - elements, ISENTROPE_F32, rank,
                                      shape.data());
  }
  void expect_refused(isentrope_status status, const std::string& words) {
    EXPECT_EQ(status, ISENTROPE_BAD_ARGUMENT) << words;
    expect_words(isentrope_last_error(), {words});
    EXPECT_EQ(memory_, before_) << "something was written";
  }

  std::int64_t used_ = 0;
  std::vector<float> memory_ = std::vector<float>(1000), before_;
};

TEST_F(Call, ForwardRefusesOverlapsByName) {
  const isentrope_forward_call good = forward();
  auto call = good;
  for (const auto& [name, array] : {std::pair{"q", good.q}, {"k", good.k}, {"v", good.v}}) {
    call = good, call.output = array;
    expect_overlap(call, "output", name);
  }
  call = good, call.output.data = static_cast<float*>(good.v.data) + kElements - 1;
  expect_refused(call, "memory of v");
  call = good, call.output.strides[2] = 1;
  expect_refused(call,
                 "output must have strides by which no elements overlap, because it is written");
  const isentrope_statistics apart = statistics_;
  statistics_.entropy = apart.lse;
  expect_overlap(good, "entropy", "lse");
  statistics_ = apart, statistics_.lse.data = good.output.data;
  expect_overlap(good, "lse", "output");
  statistics_ = apart, statistics_.lse.strides[1] = 1;
  expect_refused(good, "lse must have strides by which no elements overlap");
  statistics_ = apart;
  call = good, call.output.strides[2] = -kDim;
  call.output.data = static_cast<float*>(good.output.data) - kDim;
  expect_refused(call, "output must not overlap");
  EXPECT_EQ(isentrope_forward(options_, &good), ISENTROPE_OK) << isentrope_last_error();
}

TEST_F(Call, ForwardRefusesToWriteOverItsOptions) {
  const isentrope_forward_call call = forward();
  isentrope_array bias = isentrope_array_contiguous(call.output.data, ISENTROPE_F32, 4,
                                                    Shape{1, kHeads, kRows, kRows}.data());
  ASSERT_EQ(isentrope_options_set_array(options_, "bias", &bias), ISENTROPE_OK);
  expect_overlap(call, "output", "bias");
}

TEST_F(Call, BackwardRefusesOverlapsByName) {
  const isentrope_backward_call good = backward();
  auto call = good;
  call.dk = good.dq;
  expect_overlap(call, "dk", "dq");
  call = good, call.dv = good.d_output;
  expect_overlap(call, "dv", "d_output");
  call = good, call.d_lambda = statistics_.lse;
  expect_overlap(call, "d_lambda", "lse");
  EXPECT_EQ(isentrope_backward(options_, &good), ISENTROPE_OK) << isentrope_last_error();
}

// q, k, v and their gradients in two packed arrays, rows x (q | k | v) x heads x dim, give the same
// results as separate ones.
TEST_F(Call, PackedArraysWork) {
  isentrope_backward_call call = backward();
  ASSERT_EQ(isentrope_backward(options_, &call), ISENTROPE_OK) << isentrope_last_error();
  std::vector<float> packed(3 * kElements), gradients(3 * kElements);
  const auto part = [](std::vector<float>& from, std::int64_t index) {
    isentrope_array array =
        isentrope_array_contiguous(from.data() + index * kHeads * kDim, ISENTROPE_F32, 4,
                                   Shape{1, kHeads, kRows, kDim}.data());
    array.strides[1] = kDim;
    array.strides[2] = 3 * kHeads * kDim;
    return array;
  };
  const auto at = [](const isentrope_array& array, std::int64_t head, std::int64_t row,
                     std::int64_t i) -> float& {
    return static_cast<float*>(array.data)[head * array.strides[1] + row * array.strides[2] + i];
  };
  const auto each = [&](const auto& visit) {
    for (std::int64_t head = 0; head < kHeads; ++head) {
      for (std::int64_t row = 0; row < kRows; ++row) {
        for (std::int64_t i = 0; i < kDim; ++i) visit(head, row, i);
      }
    }
  };
  isentrope_backward_call inside = call;
  inside.q = part(packed, 0), inside.k = part(packed, 1), inside.v = part(packed, 2);
  inside.dq = part(gradients, 0), inside.dk = part(gradients, 1), inside.dv = part(gradients, 2);
  each([&](auto... where) {
    at(inside.q, where...) = at(call.q, where...);
    at(inside.k, where...) = at(call.k, where...);
    at(inside.v, where...) = at(call.v, where...);
  });
  ASSERT_EQ(isentrope_backward(options_, &inside), ISENTROPE_OK) << isentrope_last_error();
  each([&](auto... where) {
    EXPECT_EQ(at(inside.dq, where...), at(call.dq, where...));
    EXPECT_EQ(at(inside.dk, where...), at(call.dk, where...));
    EXPECT_EQ(at(inside.dv, where...), at(call.dv, where...));
  });
}

}  // namespace
}  // namespace isentrope
