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

void Results::put(StableIValue* stack) {
  stack[0] = to_value(std::move(output));
  stack[1] = to_value(std::move(shared));
  stack[2] = to_value(std::move(support));
}

}  // namespace isentrope::stable
