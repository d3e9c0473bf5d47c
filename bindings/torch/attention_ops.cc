// The operators on tensors: attention, its gradients, a decode step on a paged cache, and the
// lengths of rows.

#include <algorithm>
#include <array>
#include <bit>
#include <nlohmann/json.hpp>
#include <string_view>
#include <type_traits>

#include "bindings/torch/call.h"
#include "bindings/torch/operators.h"
#include "src/call/mask_parts.h"
#include "src/call/scale_table.h"
#include "src/call/validate.h"

namespace isentrope::stable {
namespace {

// The argument `wanted` has a bit for each statistic, in the order of the list. Those wanted share
// one f32 tensor [statistics, batch, heads, queries]; the support has an int64 tensor of its own.
using Rows = std::array<std::int64_t, 3>;

constexpr std::int64_t bit_of(std::string_view name) {
  std::int64_t bit = 1, found = 0;
  for_each_statistic([&](const Statistic& statistic) {
    if (statistic.name == name) found = bit;
    bit <<= 1;
  });
  return found;
}
constexpr std::int64_t kSupport = bit_of("support");

std::int64_t count_shared(std::int64_t wanted) {
  return std::popcount(static_cast<std::uint64_t>(wanted & (kSupport - 1)));
}

// The slices of the shared tensor; no view where one was not asked for. Tensors without elements
// have no data, but their slices still have a shape.
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

// [batch, heads, rows, columns], laid out as `like` is: where heads lie inside rows, as a
// projection leaves them, the result can be viewed as [batch, rows, heads * columns] without a
// copy.
TorchTensor empty_laid_out_as(const TorchTensor& like, std::int64_t rows, std::int64_t columns) {
  const std::int64_t heads = like.size(1);
  const std::array sizes{like.size(0), heads, rows, columns};
  if (like.strides()[1] >= like.strides()[2]) return {sizes, like.dtype()};
  const std::int64_t wide = std::max<std::int64_t>(columns, 1),
                     row = wide * std::max<std::int64_t>(heads, 1);
  return {sizes, std::array{row * std::max<std::int64_t>(rows, 1), wide, row, std::int64_t{1}},
          like.dtype()};
}

// A row-major f32 result and its view; without elements, and no view, where nobody wants it.
template <std::size_t Rank>
View<float, Rank> optional_result(TorchTensor& result, bool want,
                                  const std::array<std::int64_t, Rank>& sizes) {
  if (!want) {
    result = TorchTensor(std::array{std::int64_t{0}}, aoti_torch_dtype_float32());
    return {};
  }
  result = TorchTensor(sizes, aoti_torch_dtype_float32());
  return contiguous_view(static_cast<float*>(result.write()), sizes);
}

// The statistics of a forward pass, or their gradients, which are read as attention writes them.
const float* row_major_statistics(const char* name, const TorchTensor& tensor) {
  const auto view = view_of<float, 4>(name, tensor);
  if (std::ranges::find(view.extents, 0) != view.extents.end()) return view.data;
  std::int64_t stride = 1;
  for (std::size_t axis = view.extents.size(); axis-- > 0; stride *= view.extents[axis]) {
    // The stride of a single element is never used, and may be anything.
    if (view.extents[axis] > 1 && view.strides[axis] != stride) {
      throw Error(std::string("[attention] ") + name + " must be contiguous; got a stride of " +
                  std::to_string(view.strides[axis]) + " for " + std::to_string(stride));
    }
  }
  return view.data;
}

// What attention and decode return.
struct Results {
  Results(const TorchTensor& q, std::int64_t columns, std::int64_t bits)
      : rows{q.size(0), q.size(1), q.size(2)},
        wanted(bits),
        output(empty_laid_out_as(q, rows[2], columns)),
        shared(std::array{count_shared(wanted), rows[0], rows[1], rows[2]},
               aoti_torch_dtype_float32()),
        support(wanted & kSupport
                    ? TorchTensor(rows, aoti_torch_dtype_int64())
                    : TorchTensor(std::array{std::int64_t{0}}, aoti_torch_dtype_int64())) {}

  [[nodiscard]] AttentionOutput views() const {
    AttentionOutput views{
        output_view(output),
        slices_of<RowStatistics>(static_cast<float*>(shared.write()), wanted, rows)};
    if (wanted & kSupport) {
      views.statistics.support = contiguous_view(static_cast<std::int64_t*>(support.write()), rows);
    }
    return views;
  }

  void put(StableIValue* stack) {
    stack[0] = to_value(std::move(output));
    stack[1] = to_value(std::move(shared));
    stack[2] = to_value(std::move(support));
  }

  Rows rows;
  std::int64_t wanted;
  TorchTensor output, shared, support;
};

// The views of one batch.
template <typename T, std::size_t Rank>
View<T, Rank> batch_of(View<T, Rank> view, std::int64_t batch) {
  if (!view) return view;
  view.data += batch * view.strides[0];
  view.extents[0] = 1;
  return view;
}

template <typename Any>
Any batch_of_numbers(const Any& tensor, std::int64_t batch) {
  Any one = tensor;
  using Byte = std::conditional_t<std::is_same_v<Any, Tensor>, char, const char>;
  if (one.data)
    one.data = static_cast<Byte*>(one.data) + batch * one.strides[0] * size_of(one.type);
  one.extents[0] = 1;
  return one;
}

AttentionOutput batch_of(const AttentionOutput& all, std::int64_t batch) {
  AttentionOutput one{batch_of_numbers(all.output, batch)};
  for_each_statistic(
      [&](const Statistic&, const auto& view, auto& its) { its = batch_of(view, batch); },
      all.statistics, one.statistics);
  return one;
}

// Sequences of a batch differ in length, and with it in the position of their queries: each is a
// call of its own. Many of them share the threads, one of them has all.
void decode_batch(const AttentionInput& in, const AttentionOptions& options,
                  const AttentionOutput& out, const View<const std::int64_t, 1>& keys) {
  const std::int64_t batches = in.q.extents[0];
  const auto decode_one = [&](std::int64_t batch, const ParallelFor& parallel_for) {
    AttentionInput one{batch_of_numbers(in.q, batch),
                       in.k,
                       in.v,
                       {batch_of(in.pages.block_table, batch), keys(batch)}};
    AttentionOptions its = options;
    its.parallel_for = parallel_for;
    its.bias = batch_of(options.bias, batch);
    its.lambda = batch_of(options.lambda, batch);
    for (const MaskList& part : kMaskLists) {
      if (part.by_batch) its.mask.*part.member = batch_of(its.mask.*part.member, batch);
    }
    attention_forward(one, its, batch_of(out, batch));
  };
  if (batches == 1) return decode_one(0, run_on_torch_threads);
  run_on_torch_threads(batches, [&](std::int64_t batch) { decode_one(batch, run_serially); });
}

}  // namespace

void statistics(StableIValue* stack, std::uint64_t, std::uint64_t) {
  nlohmann::ordered_json list;
  for_each_statistic([&](const Statistic& statistic) {
    nlohmann::json needs = nlohmann::json::array();
    for (const std::string_view result : statistic.needs) {
      if (!result.empty()) needs.push_back(result);
    }
    list.push_back({{"name", name_in_python(statistic.name)},
                    {"differentiable", statistic.differentiable},
                    {"needs", needs},
                    {"weighted_mean", statistic.weighted_mean}});
  });
  stack[0] = to_value(list.dump());
}

void attention(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Arguments from(stack);
  const CallArguments call(from);
  const std::int64_t wanted = from.integer();
  const AttentionInput in = call.input();
  const AttentionOptions options = call.options();
  Results results(call.q, call.v.size(3), wanted);
  attention_forward(in, options, results.views());
  results.put(stack);
}

void attention_backward(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Arguments from(stack);
  const CallArguments call(from);
  const std::int64_t wanted = from.integer();
  const TorchTensor output = from.tensor(), shared = from.tensor();
  const TorchTensor d_output = from.optional_tensor(), d_shared = from.optional_tensor();
  const std::array<bool, 3> wants{from.integer() != 0, from.integer() != 0, from.integer() != 0};

  const AttentionInput in = call.input();
  const auto [batch, heads, queries, dim] = in.q.extents;
  const std::int64_t keys = in.k.extents[2];
  const std::array rows{batch, heads, queries};
  const std::array weights{batch, heads, queries, keys};
  std::array<TorchTensor, 6> results;
  results[0] = empty_laid_out_as(call.q, queries, dim);
  results[1] = empty_laid_out_as(call.k, keys, in.k.extents[3]);
  results[2] = empty_laid_out_as(call.v, keys, in.v.extents[3]);
  AttentionGradients gradients{output_view(results[0]), output_view(results[1]),
                               output_view(results[2])};
  gradients.d_bias = optional_result<4>(results[3], wants[0], weights);
  gradients.d_lambda = optional_result<3>(results[4], wants[1], rows);
  gradients.d_sinks = optional_result<1>(results[5], wants[2], {heads});
  const auto slices = [&](const char* name, const TorchTensor& tensor) {
    if (!tensor) return ConstRowStatistics{};
    return slices_of<ConstRowStatistics>(row_major_statistics(name, tensor), wanted, rows);
  };
  ConstRowStatistics upstream = slices("d_statistics", d_shared);
  for_each_statistic(
      [](const Statistic& statistic, auto& view) {
        if (!statistic.differentiable) view = {};
      },
      upstream);
  isentrope::attention_backward(in, call.options(),
                                {.output = number_view("output", output),
                                 .statistics = slices("statistics", shared),
                                 .d_output = number_view("d_output", d_output),
                                 .d_statistics = upstream},
                                gradients);
  for (std::size_t at = 0; at < results.size(); ++at) stack[at] = to_value(std::move(results[at]));
}

void decode(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Arguments from(stack);
  const CallArguments call(from);
  const TorchTensor block_table = from.tensor(), keys = from.tensor();
  const std::int64_t wanted = from.integer();
  AttentionInput in = call.input();
  in.pages.block_table = view_of<std::int32_t, 2>("block_table", block_table);
  const auto lengths = view_of<std::int64_t, 1>("seqused_k", keys);
  const std::int64_t batches = call.q.size(0);
  if (lengths.extents[0] != batches || in.pages.block_table.extents[0] != batches) {
    throw Error("[decode] block_table and seqused_k must have a row for each of the " +
                std::to_string(batches) + " sequences; got " +
                std::to_string(in.pages.block_table.extents[0]) + " and " +
                std::to_string(lengths.extents[0]));
  }
  Results results(call.q, call.v.size(3), wanted);
  decode_batch(in, call.options(), results.views(), lengths);
  results.put(stack);
}

void row_lengths(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Arguments from(stack);
  const CallArguments call(from);
  const AttentionInput in = call.input();
  const AttentionOptions options = call.options();
  validate_input("attention", in, options);
  validate_tables("attention", in, options);
  const auto [batches, heads, queries, dim] = in.q.extents;
  const std::array rows{batches, heads, queries};
  TorchTensor result(rows, aoti_torch_dtype_int64());
  const auto lengths = contiguous_view(static_cast<std::int64_t*>(result.write()), rows);
  for (std::int64_t batch = 0; batch < batches; ++batch) {
    for (std::int64_t head = 0; head < heads; ++head) {
      for (std::int64_t query = 0; query < queries; ++query) {
        lengths(batch, head, query) =
            counted_length(options, batch, head, query, queries, in.keys()).visible;
      }
    }
  }
  stack[0] = to_value(std::move(result));
}

// Throws what the operators would throw, of tensors on the CPU: kernels of other devices are given
// stand-ins for theirs. A page table must reach as far as it has columns.
void check_call(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Arguments from(stack);
  const CallArguments call(from);
  const TorchTensor block_table = from.optional_tensor();
  AttentionInput in = call.input();
  if (block_table) {
    in.pages.block_table = view_of<std::int32_t, 2>("block_table", block_table);
    in.pages.keys = in.pages.block_table.extents[1] * in.k.extents[2];
  }
  validate_input("attention", in, call.options());
}

}  // namespace isentrope::stable
