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

// Returns the number of keys that a row of the page table has room for.
std::int64_t keys_of_table(const AttentionInput& in) {
  const std::int64_t page_size = std::max<std::int64_t>(in.k.extents[2], 1);
  return std::min(in.pages.block_table.extents[1], kMostKeys / page_size) * page_size;
}

// Sequences of a paged cache: their pages, numbers of keys and packed queries.
class PackedSequences {
 public:
  explicit PackedSequences(Arguments& from)
      : block_table_(from.tensor()), keys_(from.tensor()), starts_(from.optional_tensor()) {}

  // Sets views of this object. Keys are counted up to what the table has pages for.
  void put_pages(AttentionInput& in) {
    block_table_ = page_table("attention", std::move(block_table_), in.k.extents[0]);
    in.pages.block_table = view_of<std::int32_t, 2>("block_table", block_table_);
    in.pages.seqused_k = view_of<std::int64_t, 1>("seqused_k", keys_);
    if (starts_) in.pages.cu_seq_q = view_of<std::int64_t, 1>("cu_seq_q", starts_);
    const std::int64_t sequences = in.sequences(), pages = in.pages.block_table.extents[0];
    in.pages.keys = keys_of_table(in);
    // Views without data would count as not given.
    static constexpr std::int32_t kNoPage = 0;
    static constexpr std::int64_t kNoNumber = 0;
    if (!in.pages.block_table) in.pages.block_table.data = &kNoPage;
    if (!in.pages.seqused_k) in.pages.seqused_k.data = &kNoNumber;
    if (in.pages.seqused_k.extents[0] == sequences && pages == sequences) return;
    throw Error("[attention] block_table and seqused_k must have a row for each of the " +
                std::to_string(sequences) + " sequences; got " + std::to_string(pages) + " and " +
                std::to_string(in.pages.seqused_k.extents[0]));
  }

 private:
  TorchTensor block_table_;
  const TorchTensor keys_, starts_;
};

void run_decode(const CallArguments& call, const AttentionInput& in,
                const AttentionOptions& options, std::int64_t wanted, StableIValue* stack) {
  Results results =
      allocate_for(in, options, [&] { return Results(call.q, call.v.size(3), wanted); });
  attention_forward(in, options, results.views());
  results.put(stack);
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
  const AttentionInput in = call.input();
  const AttentionOptions options = call.options();
  Results results =
      allocate_for(in, options, [&] { return Results(call.q, call.v.size(3), wanted); });
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
  PackedSequences sequences(from);
  const std::int64_t wanted = from.integer();
  AttentionInput in = shapes_of(call);
  const AttentionOptions options = call.options();
  sequences.put_pages(in);
  if (is_float64(call.q)) return decode_in_float64(call, in, wanted, stack);
  run_decode(call, in, options, wanted, stack);
}

void decode_codes(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Arguments from(stack);
  const CallArguments call(from);
  const TorchTensor k_scale = from.tensor(), v_scale = from.tensor();
  PackedSequences sequences(from);
  const std::int64_t wanted = from.integer();
  AttentionInput in{.q = number_view("q", call.q),
                    .k = view_of<std::int8_t, 4>("k", call.k),
                    .v = view_of<std::int8_t, 4>("v", call.v),
                    .k_scale = view_of<float, 4>("k_scale", k_scale),
                    .v_scale = view_of<float, 4>("v_scale", v_scale)};
  const AttentionOptions options = call.options();
  sequences.put_pages(in);
  run_decode(call, in, options, wanted, stack);
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
