#include "bindings/torch/results.h"

#include <bit>
#include <utility>

namespace isentrope::stable {

TorchTensor empty_laid_out_as(const TorchTensor& like, std::int64_t rows, std::int64_t columns,
                              std::int32_t dtype) {
  const std::int64_t heads = like.size(1);
  const std::array sizes{like.size(0), heads, rows, columns};
  if (like.strides()[1] >= like.strides()[2]) return {sizes, dtype};
  const std::int64_t wide = std::max<std::int64_t>(columns, 1),
                     row = wide * std::max<std::int64_t>(heads, 1);
  return {sizes, std::array{row * std::max<std::int64_t>(rows, 1), wide, row, std::int64_t{1}},
          dtype};
}

Results::Results(const TorchTensor& q, std::int64_t columns, std::int64_t bits)
    : rows{q.size(0), q.size(1), q.size(2)},
      wanted(bits),
      output(empty_laid_out_as(q, rows[2], columns, q.dtype())),
      shared(std::array<std::int64_t, 4>{std::popcount(
                                             static_cast<std::uint64_t>(wanted & (kSupport - 1))),
                                         rows[0], rows[1], rows[2]},
             is_float64(q) ? dtype_of_numbers<double>() : dtype_of_numbers<float>()),
      support(wanted & kSupport
                  ? TorchTensor(rows, aoti_torch_dtype_int64())
                  : TorchTensor(std::array{std::int64_t{0}}, aoti_torch_dtype_int64())) {}

AttentionOutput Results::views() const {
  AttentionOutput views{
      output_view(output),
      slices_of<RowStatistics>(static_cast<float*>(shared.write()), wanted, rows)};
  if (wanted & kSupport) {
    views.statistics.support = contiguous_view(static_cast<std::int64_t*>(support.write()), rows);
  }
  return views;
}

ConstRowStatistics statistic_views(const char* name, const TorchTensor& tensor, std::int64_t wanted,
                                   const Rows& rows) {
  if (!tensor) return {};
  return slices_of<ConstRowStatistics>(row_major_statistics<float>(name, tensor), wanted, rows);
}

GradientResults::GradientResults(const CallArguments& call, const std::array<bool, 3>& wants,
                                 bool in_float32) {
  const Rows rows{call.q.size(0), call.q.size(1), call.q.size(2)};
  const std::int64_t keys = call.k.size(2);
  const auto like = [&](const TorchTensor& tensor) {
    return empty_laid_out_as(tensor, tensor.size(2), tensor.size(3),
                             in_float32 ? dtype_of_numbers<float>() : tensor.dtype());
  };
  tensors[0] = like(call.q);
  tensors[1] = like(call.k);
  tensors[2] = like(call.v);
  const auto optional = [&](std::size_t at, bool want, const auto& sizes, auto& view) {
    if (is_float64(call.q)) {
      optional_result<double>(tensors[at], want, sizes);
    } else {
      view = optional_result<float>(tensors[at], want, sizes);
    }
  };
  optional(3, wants[0], std::array{rows[0], rows[1], rows[2], keys}, views_.d_bias);
  optional(4, wants[1], rows, views_.d_lambda);
  optional(5, wants[2], std::array{rows[1]}, views_.d_sinks);
  if (is_float64(call.q)) return;
  views_.dq = output_view(tensors[0]);
  views_.dk = output_view(tensors[1]);
  views_.dv = output_view(tensors[2]);
}

}  // namespace isentrope::stable
