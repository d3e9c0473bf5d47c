// Operators on tensors: attention, gradients, decode steps on numbers or 8-bit codes, row lengths.

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "bindings/torch/call.h"
#include "bindings/torch/float64.h"
#include "bindings/torch/operators.h"
#include "bindings/torch/results.h"
#include "bindings/torch/sequences.h"
#include "bindings/torch/threads.h"
#include "isentrope/quantize.h"
#include "isentrope/write_cache.h"
#include "src/call/checks.h"
#include "src/call/scale_table.h"
#include "src/call/validate.h"

namespace isentrope::stable {
namespace {

void run_forward(const CallArguments& call, const AttentionInput& in, std::int64_t wanted,
                 StableIValue* stack) {
  const AttentionOptions options = call.options();
  Results results =
      allocate_for(in, options, [&] { return Results(call.q, call.v.size(3), wanted); });
  attention_forward(in, options, results.views());
  results.put(stack);
}

// Same, with the weights that keys receive as the fourth result.
void run_received(const CallArguments& call, const AttentionInput& in, std::int64_t wanted,
                  StableIValue* stack) {
  const AttentionOptions options = call.options();
  const std::array shape{in.sequences(), in.q.extents[1], in.keys()};
  auto [results, received] = allocate_for(in, options, [&] {
    return std::pair(Results(call.q, call.v.size(3), wanted),
                     TorchTensor(shape, dtype_of_numbers<float>()));
  });
  AttentionOutput views = results.views();
  views.received = contiguous_view(static_cast<float*>(received.write()), shape);
  attention_forward(in, options, views);
  results.put(stack);
  stack[3] = to_value(std::move(received));
}

std::string_view name_of(Merge merge) {
  switch (merge) {
    case Merge::own:
      return "own";
    case Merge::mean:
      return "mean";
    case Merge::squares:
      return "squares";
    case Merge::largest_part:
      return "largest_part";
    case Merge::largest:
      return "largest";
  }
  return "";
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
                    {"differentiable", statistic.differentiable()},
                    {"needs", needs},
                    {"sums", statistic.sums != kOnlyS0},
                    {"merge", name_of(statistic.merge)}});
  });
  stack[0] = to_value(list.dump());
}

void attention(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Arguments from(stack);
  const CallArguments call(from);
  const std::int64_t wanted = from.integer();
  if (is_float64(call.q)) return attention_in_float64(call, wanted, stack);
  run_forward(call, call.input(), wanted, stack);
}

void attention_backward(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Arguments from(stack);
  const CallArguments call(from);
  const std::int64_t wanted = from.integer();
  const TorchTensor output = from.tensor(), shared = from.tensor();
  const TorchTensor d_output = from.optional_tensor(), d_shared = from.optional_tensor();
  const std::array<bool, 3> wants{from.integer() != 0, from.integer() != 0, from.integer() != 0};
  const bool in_float32 = from.integer() != 0;
  if (is_float64(call.q)) {
    return attention_backward_in_float64(call, wanted, d_output, d_shared, wants, stack);
  }
  const AttentionInput in = call.input();
  GradientResults results(call, wants, in_float32);
  const Rows rows{in.q.extents[0], in.q.extents[1], in.q.extents[2]};
  isentrope::attention_backward(
      in, call.options(),
      {.output = number_view("output", output),
       .statistics = statistic_views("statistics", shared, wanted, rows),
       .d_output = number_view("d_output", d_output),
       .d_statistics = differentiable(statistic_views("d_statistics", d_shared, wanted, rows))},
      results.views());
  results.put(stack);
}

void decode(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Arguments from(stack);
  const CallArguments call(from);
  Sequences sequences(from);
  const std::int64_t wanted = from.integer();
  const AttentionInput in = over_cache(call, {}, {}, sequences);
  if (is_float64(call.q)) return decode_in_float64(call, in, wanted, stack);
  run_forward(call, in, wanted, stack);
}

void decode_codes(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Arguments from(stack);
  const CallArguments call(from);
  const TorchTensor k_scale = from.tensor(), v_scale = from.tensor();
  Sequences sequences(from);
  const std::int64_t wanted = from.integer();
  run_forward(call, over_cache(call, k_scale, v_scale, sequences), wanted, stack);
}

void decode_received(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Arguments from(stack);
  const CallArguments call(from);
  const TorchTensor k_scale = from.optional_tensor(), v_scale = from.optional_tensor();
  Sequences sequences(from);
  const std::int64_t wanted = from.integer();
  run_received(call, over_cache(call, k_scale, v_scale, sequences), wanted, stack);
}

void write_cache(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Arguments from(stack);
  const TorchTensor k = from.tensor(), v = from.tensor();
  const TorchTensor k_cache = from.tensor(), v_cache = from.tensor(), slots = from.tensor();
  const auto cache = [](const char* name, const TorchTensor& tensor) {
    const ConstTensor view = number_view(name, tensor);
    return Tensor(tensor.write(), view.type, view.extents, view.strides);
  };
  isentrope::write_cache(number_view("k", k), number_view("v", v), cache("k_cache", k_cache),
                         cache("v_cache", v_cache), view_of<std::int64_t, 1>("slot_mapping", slots),
                         run_on_torch_threads);
}

void quantize(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Arguments from(stack);
  const TorchTensor rows = from.tensor();
  const std::int64_t groups = from.integer();
  const ConstTensor numbers = number_view("rows", rows);
  Shape<4> shape = numbers.extents;
  TorchTensor codes(shape, dtype_of_numbers<std::int8_t>());
  const auto to = contiguous_view(static_cast<std::int8_t*>(codes.write()), shape);
  shape[3] = groups;
  TorchTensor scales(shape, dtype_of_numbers<float>());
  isentrope::quantize(numbers, to, contiguous_view(static_cast<float*>(scales.write()), shape));
  stack[0] = to_value(std::move(codes));
  stack[1] = to_value(std::move(scales));
}

void row_lengths(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Arguments from(stack);
  const CallArguments call(from);
  const AttentionInput in = shapes_of(call);
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

// For each batch and each row of `rows` [pieces, 2], queries begin ... end - 1: returns the keys
// from the first to the last that some of them see, int64 [batch, pieces, 2]. It reads
// only the shapes of q, k and v.
void keys_seen(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Arguments from(stack);
  const CallArguments call(from);
  const TorchTensor rows = from.tensor();
  const AttentionInput in = shapes_of(call);
  const AttentionOptions options = call.options();
  validate_input("attention", in, options);
  validate_tables("attention", in, options);
  const auto pieces = view_of<std::int64_t, 2>("rows", rows);
  const std::int64_t batches = in.q.extents[0], queries = in.q.extents[2];
  const std::array shape{batches, pieces.extents[0], std::int64_t{2}};
  TorchTensor result(shape, aoti_torch_dtype_int64());
  const auto seen = contiguous_view(static_cast<std::int64_t*>(result.write()), shape);
  for (std::int64_t batch = 0; batch < batches; ++batch) {
    for (std::int64_t piece = 0; piece < shape[1]; ++piece) {
      const KeyRange rows_of_piece{std::clamp<std::int64_t>(pieces(piece, 0), 0, queries),
                                   std::clamp<std::int64_t>(pieces(piece, 1), 0, queries)};
      const KeyRange keys = keys_seen_by(options.mask, batch, rows_of_piece, queries, in.keys());
      seen(batch, piece, 0) = keys.begin;
      seen(batch, piece, 1) = keys.end;
    }
  }
  stack[0] = to_value(std::move(result));
}

// Throws the errors that the operators would throw for CPU tensors. Kernels of other devices pass
// stand-ins for their tensors. A page table must have enough columns.
void check_call(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Arguments from(stack);
  const CallArguments call(from);
  const TorchTensor block_table = from.optional_tensor(), starts = from.optional_tensor();
  AttentionInput in = call.input();
  // They read no f32 q over 16-bit keys.
  Checks("attention").type("k", in.k.type, in.q.type, "q is");
  if (block_table) {
    in.pages.block_table = view_of<std::int32_t, 2>("block_table", block_table);
    in.pages.keys = keys_of_table(in);
    if (starts) in.pages.cu_seq_q = view_of<std::int64_t, 1>("cu_seq_q", starts);
  }
  validate_input("attention", in, call.options());
}

}  // namespace isentrope::stable
