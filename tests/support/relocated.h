// The library's passes on copies of a call's arrays: with other strides, next to forbidden pages,
// or farther apart than 32 bits count.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <deque>
#include <optional>

#include "src/call/arguments.h"
#include "src/shape.h"
#include "tests/support/guarded_memory.h"
#include "tools/check/run.h"

namespace isentrope::check {

enum class Place {
  scattered,   // reversed columns with stride -2, rows outermost
  backwards,   // rows in reverse order, so that the first element of memory is not the tensor's
  shifted,     // rows in order, from the second element of memory on
  apart,       // rows outermost, with a gap of one element between heads
  left,        // contiguous, from the end of a forbidden page on
  right,       // contiguous, up to the start of a forbidden page
  far,         // rows more than 2^31 elements apart
  far_columns  // the same of columns
};

// Place of the arrays that passes get, which take no further arguments.
inline Place place_of_arrays;
// Whether the system refused address space for far arrays.
inline bool far_was_refused = false;

struct Placed {
  std::int64_t offset;
  Shape<4> strides;
  std::int64_t elements;  // of memory
};

inline Placed placed(Place place, const Shape<4>& extents) {
  constexpr std::int64_t kFar = (std::int64_t{1} << 31) + 8, kHead = 256;
  const auto [batch, heads, rows, columns] = extents;
  const std::int64_t count = batch * heads * rows * columns;
  switch (place) {
    case Place::scattered:
      return {(columns - 1) * 2,
              {heads * columns * 2, columns * 2, batch * heads * columns * 2, -2},
              2 * count};
    case Place::backwards:
      return {1 + (rows - 1) * columns,
              {heads * rows * columns, rows * columns, -columns, 1},
              2 * count};
    case Place::shifted:
      return {1, {heads * rows * columns, rows * columns, columns, 1}, 2 * count};
    case Place::apart:
      return {0, {heads * columns, columns, batch * heads * columns + 1, 1}, 2 * count};
    case Place::left:
    case Place::right:
      return {0, {heads * rows * columns, rows * columns, columns, 1}, count};
    case Place::far:
      return {0, {rows * kFar, kHead, kFar, 1}, batch * rows * kFar + heads * kHead};
    case Place::far_columns:
      return {0, {heads * rows, rows, 1, kFar}, columns * kFar};
  }
  return {};
}

// Arrays that are written are copied back at the end. Nothing may be written beside elements.
class Relocated {
 public:
  ~Relocated() {
    for (Copy& copy : copies_) {
      copy.for_each_element([&](std::byte* original, std::byte* element) {
        if (copy.is_written) std::copy_n(element, copy.size, original);
        if (copy.guarded) std::fill_n(element, copy.size, std::byte{0xFF});
      });
      EXPECT_TRUE(!copy.guarded || copy.guarded->is_untouched());
    }
  }

  template <typename Array>
  Array read(const Array& array, Place place = place_of_arrays) {
    return relocated(array, false, place);
  }
  template <typename Array>
  Array written(const Array& array) {
    return relocated(array, true, place_of_arrays);
  }

  // The arguments of passes.
  AttentionInput operator()(const AttentionInput& in) {
    const PagedKeys pages{read(in.pages.block_table), in.pages.keys, in.pages.seqused_k,
                          in.pages.cu_seq_q};
    return {read(in.q), read(in.k), read(in.v), pages, in.k_scale, in.v_scale};
  }
  AttentionOptions operator()(AttentionOptions options) {
    const Place place = place_of_arrays == Place::far ? Place::far_columns : place_of_arrays;
    for_each_host_argument(options, [&](const char*, auto& argument) {
      if constexpr (requires { argument.strides; }) argument = read(argument, place);
    });
    return options;
  }
  AttentionOutput operator()(const AttentionOutput& to) {
    return {written(to.output), (*this)(to.statistics), written(to.received)};
  }
  AttentionGradientInput operator()(const AttentionGradientInput& in) {
    return {read(in.output), (*this)(in.statistics), read(in.d_output), (*this)(in.d_statistics)};
  }
  AttentionGradients operator()(const AttentionGradients& to) {
    return {written(to.dq),     written(to.dk),       written(to.dv),
            written(to.d_bias), written(to.d_lambda), written(to.d_sinks)};
  }
  AttentionTangentInput operator()(const AttentionTangentInput& in) {
    return {read(in.output), (*this)(in.statistics), (*this)(in.tangents)};
  }
  AttentionTangentOutput operator()(const AttentionTangentOutput& to) {
    return {written(to.output), (*this)(to.statistics)};
  }
  AttentionSecondOrderInput operator()(const AttentionSecondOrderInput& in) {
    return {read(in.output),         (*this)(in.statistics),         (*this)(in.tangents),
            read(in.output_tangent), (*this)(in.statistic_tangents), read(in.d_output),
            (*this)(in.d_statistics)};
  }
  KeyStatisticsRows operator()(const KeyStatisticsRows& rows) {
    return {read(rows.lse), read(rows.weights)};
  }
  View<float, 3> operator()(const View<float, 3>& to) { return written(to); }

 private:
  AttentionTangents operator()(const AttentionTangents& tangents) {
    return {read(tangents.q),    read(tangents.k),      read(tangents.v),
            read(tangents.bias), read(tangents.lambda), read(tangents.sinks)};
  }
  ConstRowStatistics operator()(ConstRowStatistics views) {
    for_each_statistic([&](const Statistic&, auto& view) { view = read(view); }, views);
    return views;
  }
  RowStatistics operator()(RowStatistics views) {
    for_each_statistic([&](const Statistic&, auto& view) { view = written(view); }, views);
    return views;
  }

  struct Copy {
    std::byte *original = nullptr, *first = nullptr;
    Shape<4> extents{1, 1, 1, 1}, original_strides{}, strides{};
    std::int64_t size = 0;  // of an element
    bool is_written = false;
    std::optional<GuardedMemory> guarded{};
    std::optional<SparseMemory> sparse{};

    template <typename Visit>
    void for_each_element(const Visit& visit) const {
      const auto [batch, heads, rows, columns] = extents;
      for (std::int64_t i = 0; i < batch * heads * rows * columns; ++i) {
        const Shape<4> at = {i / columns / rows / heads, i / columns / rows % heads,
                             i / columns % rows, i % columns};
        std::int64_t from = 0, to = 0;
        for (std::size_t axis = 0; axis < 4; ++axis) {
          from += at[axis] * original_strides[axis] * size;
          to += at[axis] * strides[axis] * size;
        }
        visit(original + from, first + to);
      }
    }
  };

  template <typename Array>
  Array relocated(Array array, bool is_written, Place place) {
    const bool is_far = place == Place::far || place == Place::far_columns;
    const bool is_contiguous = place == Place::left || place == Place::right;
    // Short lists have no strides of their own, and rows of statistics need not be far.
    if (!array || (array.extents.size() < (is_far ? 4 : 3) && !is_contiguous)) return array;
    Copy& copy = copies_.emplace_back();
    copy.original =
        static_cast<std::byte*>(const_cast<void*>(static_cast<const void*>(array.data)));
    std::ranges::copy(array.extents, copy.extents.begin());
    std::ranges::copy(array.strides, copy.original_strides.begin());
    if constexpr (requires { array.type; }) {
      copy.size = size_of(array.type);
    } else {
      copy.size = sizeof *array.data;
    }
    copy.is_written = is_written;
    const Placed to = placed(place, copy.extents);
    const auto bytes = static_cast<std::size_t>(to.elements * copy.size);
    std::byte* const memory =
        is_far
            ? copy.sparse.emplace(bytes).data()
            : copy.guarded.emplace(bytes, place == Place::left ? Flush::left : Flush::right).data();
    if (memory == nullptr) {
      far_was_refused = true;
      copies_.pop_back();
      return array;
    }
    copy.strides = to.strides;
    copy.first = memory + to.offset * copy.size;
    copy.for_each_element([&](const std::byte* original, std::byte* element) {
      if (!is_written) std::copy_n(original, copy.size, element);
    });
    array.data = static_cast<decltype(array.data)>(static_cast<void*>(copy.first));
    std::copy_n(copy.strides.begin(), array.strides.size(), array.strides.begin());
    return array;
  }

  std::deque<Copy> copies_;
};

// The passes that relocated_passes() calls: those of the library, or of another door.
inline Passes passes_of_arrays;

// One of these passes, on relocated arrays.
template <auto pass>
inline constexpr auto kRelocated = [](const auto&... arguments) {
  Relocated relocated;
  (passes_of_arrays.*pass)(relocated(arguments)...);
};

inline Passes relocated_passes() {
  return {kRelocated<&Passes::forward>,  kRelocated<&Passes::backward>,
          kRelocated<&Passes::tangent>,  kRelocated<&Passes::second_order>,
          kRelocated<&Passes::received>, passes_of_arrays.weights_at};
}

}  // namespace isentrope::check
