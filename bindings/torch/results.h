// Results of the operators as tensors: outputs in the layout of the inputs, statistics in one
// tensor, and requested gradients. Float here is float, or double for calls in float64.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "bindings/torch/call.h"
#include "bindings/torch/values.h"
#include "isentrope/attention.h"
#include "src/call/validate.h"

namespace isentrope::stable {

// The argument `wanted` has a bit for each statistic, in the order of the list. Requested ones
// share one tensor [statistics, batch, heads, queries]; the support has an int64 tensor of its own.
using Rows = std::array<std::int64_t, 3>;

constexpr std::int64_t bit_of(std::string_view name) {
  std::int64_t bit = 1, found = 0;
  for_each_statistic([&](const Statistic& statistic) {
    if (statistic.name == name) found = bit;
    bit <<= 1;
  });
  return found;
}
inline constexpr std::int64_t kSupport = bit_of("support");

// Returns slices of the shared tensor, of what was requested. Slices of empty tensors keep a shape.
template <typename Views, typename T>
Views slices_of(T* data, std::int64_t wanted, const Rows& rows) {
  Views views;
  std::int64_t bit = 1;
  for_each_statistic(
      [&](const Statistic&, auto& view) {
        if constexpr (std::is_same_v<T*, decltype(view.data)>) {
          if (wanted & bit) {
            view = contiguous_view(data, rows);
            data += rows[0] * rows[1] * rows[2];
          }
        }
        bit <<= 1;
      },
      views);
  return views;
}

// Returns [batch, heads, rows, columns] in the layout of `like`. If heads are inside rows, as in
// projections, the result can be viewed as [batch, rows, heads * columns] without a copy.
TorchTensor empty_laid_out_as(const TorchTensor& like, std::int64_t rows, std::int64_t columns,
                              std::int32_t dtype);

// A row-major result and its view; empty and without a view if it was not requested.
template <typename Float, std::size_t Rank>
View<Float, Rank> optional_result(TorchTensor& result, bool want,
                                  const std::array<std::int64_t, Rank>& sizes) {
  const std::int32_t dtype = dtype_of_numbers<Float>();
  if (!want) {
    result = TorchTensor(std::array{std::int64_t{0}}, dtype);
    return {};
  }
  result = TorchTensor(sizes, dtype);
  return contiguous_view(static_cast<Float*>(result.write()), sizes);
}

// Statistics of a forward pass, or their gradients, in the layout that attention writes.
template <typename Float>
const Float* row_major_statistics(const char* name, const TorchTensor& tensor) {
  const auto view = view_of<Float, 4>(name, tensor);
  if (std::ranges::find(view.extents, 0) != view.extents.end()) return view.data;
  std::int64_t stride = 1;
  for (std::size_t axis = view.extents.size(); axis-- > 0; stride *= view.extents[axis]) {
    // The stride of a dimension of one element is never used, and may be anything.
    if (view.extents[axis] > 1 && view.strides[axis] != stride) {
      throw Error(std::string("[attention] ") + name + " must be contiguous; got a stride of " +
                  std::to_string(view.strides[axis]) + " for " + std::to_string(stride));
    }
  }
  return view.data;
}

// Returns views of a tensor of statistics in float32, or of their gradients; empty for none.
[[nodiscard]] ConstRowStatistics statistic_views(const char* name, const TorchTensor& tensor,
                                                 std::int64_t wanted, const Rows& rows);

// Returns the views without those of statistics that are not differentiable.
template <typename Statistics>
[[nodiscard]] Statistics differentiable(Statistics views) {
  for_each_statistic(
      [](const Statistic& statistic, auto& view) {
        if (!statistic.differentiable()) view = {};
      },
      views);
  return views;
}

// Returns make(). If allocation fails, reports invalid arguments first: q may be impossible.
template <typename Make>
auto allocate_for(const AttentionInput& in, const AttentionOptions& options, const Make& make) {
  try {
    return make();
  } catch (const std::exception&) {
    validate_input("attention", in, options);
    throw;
  }
}

// Results of attention and decode.
struct Results {
  Results(const TorchTensor& q, std::int64_t columns, std::int64_t bits);

  // Returns views for a kernel to write to.
  [[nodiscard]] AttentionOutput views() const;

  Rows rows;
  std::int64_t wanted;
  TorchTensor output, shared, support;
};

// Gradients of a call: dq, dk, dv, in the types of q, k and v or in f32, and d_bias, d_lambda and
// d_sinks if requested, which are float.
struct GradientResults {
  // Arguments of operators that return gradients, and the results.
  static constexpr const char* kArguments =
      ", Tensor? d_output, Tensor? d_statistics, bool wants_bias, bool wants_lambda, "
      "bool wants_sinks";
  static constexpr const char* kResults =
      ") -> (Tensor dq, Tensor dk, Tensor dv, Tensor d_bias, Tensor d_lambda, Tensor d_sinks)";

  GradientResults(const CallArguments& call, const std::array<bool, 3>& wants,
                  bool in_float32 = false);

  [[nodiscard]] AttentionGradients views() const { return views_; }

  std::array<TorchTensor, 6> tensors;

 private:
  AttentionGradients views_;
};

inline void put(Results results, StableIValue* stack) {
  put(std::array{std::move(results.output), std::move(results.shared), std::move(results.support)},
      stack);
}
inline void put(GradientResults results, StableIValue* stack) {
  put(std::move(results.tensors), stack);
}

}  // namespace isentrope::stable
