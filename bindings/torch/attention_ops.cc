// Operators on tensors: attention, gradients, decode steps on numbers or 8-bit codes, row lengths.

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "bindings/torch/call.h"
#include "bindings/torch/float64.h"
#include "bindings/torch/operators.h"
#include "bindings/torch/results.h"
#include "bindings/torch/sequences.h"
#include "bindings/torch/threads.h"
#include "isentrope/quantize.h"
#include "isentrope/statistics.h"
#include "isentrope/write_cache.h"
#include "src/call/checks.h"
#include "src/call/scale_table.h"
#include "src/call/validate.h"

namespace isentrope::stable {
namespace {

Results run_forward(const CallArguments& call, const AttentionInput& in, std::int64_t wanted) {
  if (is_float64(call.q)) return forward_in_float64(call, in, wanted);
  const AttentionOptions options = call.options();
  Results results =
      allocate_for(in, options, [&] { return Results(call.q, call.v.size(3), wanted); });
  attention_forward(in, options, results.views());
  return results;
}

Results attention(const CallArguments& call, std::int64_t wanted) {
  return run_forward(call, shapes_of(call), wanted);
}

GradientResults attention_backward(const CallArguments& call, std::int64_t wanted,
                                   const TorchTensor& output, const TorchTensor& shared,
                                   const OptionalTensor& d_output, const OptionalTensor& d_shared,
                                   const std::array<bool, 3>& wants, bool in_float32) {
  if (is_float64(call.q)) {
    const AttentionOptions options = validated_options("attention_backward", call);
    return results_of(reference::attention_backward(call.input_in_float64(), options,
                                                    upstream_of(call, wanted, d_output, d_shared)),
                      call, wants);
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
  return results;
}

Results decode(const CallArguments& call, Sequences& sequences, std::int64_t wanted) {
  return run_forward(call, over_cache(call, {}, {}, sequences), wanted);
}

Results decode_codes(const CallArguments& call, const TorchTensor& k_scale,
                     const TorchTensor& v_scale, Sequences& sequences, std::int64_t wanted) {
  return run_forward(call, over_cache(call, k_scale, v_scale, sequences), wanted);
}

// Also returns the weights that keys receive. Not in float64.
std::array<TorchTensor, 4> decode_received(const CallArguments& call, const OptionalTensor& k_scale,
                                           const OptionalTensor& v_scale, Sequences& sequences,
                                           std::int64_t wanted) {
  const AttentionInput in = over_cache(call, k_scale, v_scale, sequences);
  const AttentionOptions options = call.options();
  const std::array shape{in.sequences(), in.q.extents[1], in.keys()};
  auto [results, received] = allocate_for(in, options, [&] {
    return std::pair(Results(call.q, call.v.size(3), wanted),
                     TorchTensor(shape, dtype_of_numbers<float>()));
  });
  AttentionOutput views = results.views();
  views.received = contiguous_view(static_cast<float*>(received.write()), shape);
  attention_forward(in, options, views);
  return {std::move(results.output), std::move(results.shared), std::move(results.support),
          std::move(received)};
}

void write_cache(const TorchTensor& k, const TorchTensor& v, const TorchTensor& k_cache,
                 const TorchTensor& v_cache, const TorchTensor& slots) {
  const auto cache = [](const char* name, const TorchTensor& tensor) {
    const ConstTensor view = number_view(name, tensor);
    return Tensor(tensor.write(), view.type, view.extents, view.strides);
  };
  isentrope::write_cache(number_view("k", k), number_view("v", v), cache("k_cache", k_cache),
                         cache("v_cache", v_cache), view_of<std::int64_t, 1>("slot_mapping", slots),
                         run_on_torch_threads);
}

std::array<TorchTensor, 2> quantize(const TorchTensor& rows, std::int64_t groups) {
  const ConstTensor numbers = number_view("rows", rows);
  Shape<4> shape = numbers.extents;
  TorchTensor codes(shape, dtype_of_numbers<std::int8_t>());
  const auto to = contiguous_view(static_cast<std::int8_t*>(codes.write()), shape);
  shape[3] = groups;
  TorchTensor scales(shape, dtype_of_numbers<float>());
  isentrope::quantize(numbers, to, contiguous_view(static_cast<float*>(scales.write()), shape));
  return {std::move(codes), std::move(scales)};
}

TorchTensor row_lengths(const CallArguments& call) {
  const AttentionInput in = shapes_of(call);
  const AttentionOptions options = validated_options("attention", call);
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
  return result;
}

// For each batch and each row of `rows` [pieces, 2], queries begin ... end - 1: returns the keys
// from the first to the last that some of them see, int64 [batch, pieces, 2]. It reads
// only the shapes of q, k and v.
TorchTensor keys_seen(const CallArguments& call, const TorchTensor& rows) {
  const AttentionInput in = shapes_of(call);
  const AttentionOptions options = validated_options("attention", call);
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
  return result;
}

// Throws the errors that the operators would throw for CPU tensors. Kernels of other devices pass
// stand-ins for their tensors. A page table must have enough columns.
void check_call(const CallArguments& call, const OptionalTensor& block_table,
                const OptionalTensor& starts) {
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

}  // namespace

void define_attention(const Library& library) {
  const std::string call = "(" + call_schema(), paged = Sequences::kSchema;
  const std::string results = ", int wanted) -> (Tensor output, Tensor statistics, Tensor support";
  library.on_cpu<attention>("attention" + call + results + ")");
  library.on_cpu<attention_backward>(
      "attention_backward" + call + ", int wanted, Tensor output, Tensor statistics" +
      GradientResults::kArguments + ", bool in_float32" + GradientResults::kResults);
  library.on_cpu<decode>("decode" + call + paged + results + ")");
  library.on_cpu<decode_codes>("decode_codes" + call + ", Tensor k_scale, Tensor v_scale" + paged +
                               results + ")");
  library.on_cpu<decode_received>("decode_received" + call + ", Tensor? k_scale, Tensor? v_scale" +
                                  paged + results + ", Tensor received)");
  library.on_cpu<write_cache>(
      "write_cache(Tensor k, Tensor v, Tensor(a!) k_cache, Tensor(b!) v_cache, "
      "Tensor slot_mapping) -> ()");
  library.on_cpu<quantize>("quantize(Tensor rows, int groups) -> (Tensor codes, Tensor scales)");
  library.on_cpu<row_lengths>("row_lengths" + call + ") -> Tensor");
  library.on_cpu<keys_seen>("keys_seen" + call + ", Tensor rows) -> Tensor");
  library.on_cpu<check_call>("check_call" + call +
                             ", Tensor? block_table, Tensor? cu_seq_q) -> ()");
  library.anywhere<call_arguments>("call_arguments() -> str");
  library.anywhere<statistics_json>("statistics() -> str");
}

}  // namespace isentrope::stable
