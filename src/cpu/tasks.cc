#include "src/cpu/tasks.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "src/call/sequences.h"
#include "src/cpu/dq_accum.h"
#include "src/cpu/kernels.h"
#include "src/cpu/plan.h"
#include "src/cpu/steps/row_results.h"

namespace isentrope::cpu {
namespace {

// Whole panels of every target.
constexpr std::int64_t kLogitsTogether = 64;

bool is_finite(const View<const float, 3>& rows) {
  for (std::int64_t a = 0; a < rows.extents[0]; ++a)
    for (std::int64_t b = 0; b < rows.extents[1]; ++b)
      for (std::int64_t c = 0; c < rows.extents[2]; ++c)
        if (!std::isfinite(rows(a, b, c))) return false;
  return true;
}

// Writes 0 for keys past those of a sequence.
void clear_keys_past(const View<float, 3>& received, std::int64_t sequence, std::int64_t keys) {
  View<float, 3> past = entry_of(received, sequence);
  past.data += keys * past.strides[2];
  past.extents[2] -= keys;
  fill_with_zeros(past);
}

// Calls run(begin, end) with the work items of each task. Which thread takes a task does not change
// bits, because each item is computed by one thread in a fixed order.
template <typename Run>
void for_each_task(const TilePlan& plan, const ParallelFor& parallel_for, const Run& run) {
  parallel_for(plan.tasks(), [&](std::int64_t task) {
    const std::int64_t begin = task * plan.items_per_task;
    run(begin, std::min(plan.items(), begin + plan.items_per_task));
  });
}

// Consecutive items of one kind share memory. Short last blocks of a head may differ in kind.
void run_items(const ForwardCall& call, std::int64_t begin, std::int64_t end,
               std::int64_t most_decode_rows) {
  const std::int64_t group = call.input.q.extents[1] / call.plan.kv_heads;
  const auto decodes = [&](std::int64_t index) {
    const WorkItem item = item_of(call.plan, index);
    return group * (item.end - item.begin) <= most_decode_rows;
  };
  for (std::int64_t index = begin; index < end;) {
    const bool decode = decodes(index);
    std::int64_t last = index + 1;
    while (last < end && decodes(last) == decode) ++last;
    (decode ? run_decode : run_forward)(call, index, last);
    index = last;
  }
}

// A forward pass with its plan, and with room for partial results if its keys are split.
class PlannedForward {
 public:
  PlannedForward(const AttentionInput& in, const AttentionOptions& options, const ScaleTable& scale,
                 const MaskSummary& masks, const AttentionOutput& output)
      : plan_(plan_of(in)),
        call_{{in, options, scale, plan_}, masks, output, plan_.splits > 1 ? &partials_ : nullptr},
        most_decode_rows_(most_rows_of_decode(call_)) {
    if (output.received) make_room_for_logits();
    if (plan_.splits == 1) return;
    // Each split has its own state and sums, merged later, so that timing does not change results.
    partials_.rows = in.q.extents[1] / plan_.kv_heads * plan_.block_rows;
    const auto rows = static_cast<std::size_t>(plan_.items() * partials_.rows);
    partials_.states.resize(rows);
    partials_.sums.resize(rows * static_cast<std::size_t>(in.v.extents[3]));
  }
  PlannedForward(const PlannedForward&) = delete;
  PlannedForward& operator=(const PlannedForward&) = delete;

  [[nodiscard]] TilePlan& plan() { return plan_; }
  void run(std::int64_t begin, std::int64_t end) const {
    run_items(call_, begin, end, most_decode_rows_);
  }
  // Number of query blocks whose splits must be merged.
  [[nodiscard]] std::int64_t merges() const {
    return plan_.splits > 1 ? plan_.items() / plan_.splits : 0;
  }
  void merge(std::int64_t index) const { merge_splits(call_, index); }

  // Computes the weights that keys receive if they are wanted, after the merges. Rows whose lse is
  // not finite make only keys NaN that they see, which logits of -inf do not tell.
  void finish_received(const ParallelFor& parallel_for) const {
    const auto& [in, options, scale, plan, dropout] = static_cast<const Call&>(call_);
    const AttentionOutput& out = call_.output;
    if (!out.received) return;
    const KeyStatisticsRows rows{out.statistics.lse};
    if (!call_.logits || !is_finite(rows.lse))
      return received(in, options, scale, rows, out.received, parallel_for);
    const ReceivedCall call{{in, options, scale, plan}, rows, out.received};
    const std::int64_t heads = in.q.extents[1];
    parallel_for(in.q.extents[0] * heads, [&](std::int64_t index) {
      run_received_of_logits(call, call_.logits, index / heads, index % heads);
    });
  }

 private:
  // Logits are kept if all items are decode steps.
  void make_room_for_logits() {
    const auto [batches, heads, queries, dim] = call_.input.q.extents;
    if (plan_.blocks > 1 || heads / plan_.kv_heads * queries > most_decode_rows_) return;
    const std::int64_t keys = divide_up(plan_.keys, kLogitsTogether) * kLogitsTogether;
    logits_ = std::make_unique_for_overwrite<float[]>(
        static_cast<std::size_t>(batches * heads * queries * keys));
    call_.logits = contiguous_view<float, 4>(logits_.get(), {batches, heads, queries, keys});
  }

  static TilePlan plan_of(const AttentionInput& in) {
    const auto [batches, heads, queries, dim] = in.q.extents;
    const std::int64_t kv_heads = in.k.extents[1];
    // The third extent of a paged tensor is the page size, so the page table tells how many keys.
    return plan_forward(batches, kv_heads, heads / kv_heads, queries, in.keys());
  }

  TilePlan plan_;
  Partials partials_;
  std::unique_ptr<float[]> logits_;
  ForwardCall call_;
  const std::int64_t most_decode_rows_;
};

// One sequence of a call, with all that its tasks refer to.
struct PlannedSequence {
  PlannedSequence(const AttentionInput& in, const AttentionOptions& options,
                  const AttentionOutput& output, std::int64_t sequence,
                  const ParallelFor& parallel_for)
      : call(sequence_of(in, options, output, sequence)),
        masks(call.input, call.options, parallel_for),
        scale(call.input, call.options, parallel_for, &masks),
        forward(call.input, call.options, scale, masks, call.output) {}

  SequenceCall call;
  MaskSummary masks;
  ScaleTable scale;
  PlannedForward forward;
};

// Work items, or merges, begin ... end - 1 of a sequence.
struct SequenceTask {
  const PlannedForward* forward;
  std::int64_t begin, end;
};

bool asks_for_largest_keys(const AttentionGradientInput& gradient) {
  bool asks = false;
  for_each_statistic([&](const Statistic& statistic,
                         const auto& d) { asks |= d && (statistic.gradient & kLargestKey); },
                     gradient.d_statistics);
  return asks;
}

// Computes all gradients but those of sinks, of the second-order pass if `second` is given.
void run_key_blocks(const AttentionInput& in, const AttentionOptions& options,
                    const ScaleTable& scale, const AttentionGradientInput& gradient,
                    const AttentionGradients& result, const AttentionSecondOrderInput* second,
                    const ParallelFor& parallel_for) {
  const auto [batches, heads, queries, dim] = in.q.extents;
  const std::int64_t kv_heads = in.k.extents[1], keys = in.k.extents[2];
  // Kernels visit only keys in ranges, and d_bias covers all keys.
  fill_with_zeros(result.d_bias);
  if (batches * heads * queries * keys == 0) {
    // There is nothing to compute, but the results must still be written.
    for (const Tensor* tensor : {&result.dq, &result.dk, &result.dv}) fill_with_zeros(*tensor);
    return fill_with_zeros(result.d_lambda);
  }
  const TilePlan plan = plan_backward(batches, kv_heads, heads / kv_heads, queries, keys);
  // Key blocks write partial sums of dq, which are added in order.
  const DqAccum accum(plan, result);
  std::optional<LargestKeys> largest;
  if (asks_for_largest_keys(gradient)) largest.emplace(plan, in, options.mask);
  BackwardCall call{{in, options, scale, plan},   gradient, result, accum.dq(), accum.d_lambda(),
                    largest ? &*largest : nullptr};
  std::optional<QueryTangents> query_tangents;
  if (second) {
    query_tangents.emplace(in, scale, second->tangents, parallel_for);
    call.second = second;
    call.query_tangents = query_tangents->tensor();
    call.query_tangents_are_scaled = query_tangents->are_scaled();
    call.key_tangents = second->tangents.k;
    call.value_tangents = second->tangents.v;
  }
  if (largest) {
    for_each_task(plan, parallel_for, [&](std::int64_t begin, std::int64_t end) {
      find_largest_keys(call, begin, end);
    });
  }
  for_each_task(plan, parallel_for, [&](std::int64_t begin, std::int64_t end) {
    (second ? run_second_order : run_backward)(call, begin, end);
  });
  accum.add_up(parallel_for);
}

}  // namespace

void forward(const AttentionInput& in, const AttentionOptions& options, const ScaleTable& scale,
             const MaskSummary& masks, const AttentionOutput& output,
             const ParallelFor& parallel_for) {
  PlannedForward forward(in, options, scale, masks, output);
  for_each_task(forward.plan(), parallel_for,
                [&](std::int64_t begin, std::int64_t end) { forward.run(begin, end); });
  if (forward.merges() > 0)
    parallel_for(forward.merges(), [&](std::int64_t index) { forward.merge(index); });
  forward.finish_received(parallel_for);
}

void forward_sequences(const AttentionInput& in, const AttentionOptions& options,
                       const AttentionOutput& output, const ParallelFor& parallel_for) {
  std::deque<PlannedSequence> sequences;  // which never moves its elements
  std::int64_t items = 0;
  for (std::int64_t s = 0; s < in.sequences(); ++s) {
    const bool has_queries = queries_of(in, s).size() > 0;
    if (output.received) clear_keys_past(output.received, s, has_queries ? keys_of(in, s) : 0);
    if (!has_queries) continue;
    items += sequences.emplace_back(in, options, output, s, parallel_for).forward.plan().items();
  }
  std::vector<SequenceTask> tasks, merges;
  for (PlannedSequence& sequence : sequences) {
    const PlannedForward& forward = sequence.forward;
    TilePlan& plan = sequence.forward.plan();
    plan.items_per_task = items_per_task(plan, items);
    for (std::int64_t begin = 0; begin < plan.items(); begin += plan.items_per_task)
      tasks.push_back({&forward, begin, std::min(plan.items(), begin + plan.items_per_task)});
    for (std::int64_t index = 0; index < forward.merges(); ++index)
      merges.push_back({&forward, index, index + 1});
  }
  parallel_for(static_cast<std::int64_t>(tasks.size()), [&](std::int64_t index) {
    const SequenceTask& task = tasks[static_cast<std::size_t>(index)];
    task.forward->run(task.begin, task.end);
  });
  if (!merges.empty()) {
    parallel_for(static_cast<std::int64_t>(merges.size()), [&](std::int64_t index) {
      const SequenceTask& merge = merges[static_cast<std::size_t>(index)];
      merge.forward->merge(merge.begin);
    });
  }
  for (const PlannedSequence& sequence : sequences) sequence.forward.finish_received(parallel_for);
}

void backward(const AttentionInput& in, const AttentionOptions& options, const ScaleTable& scale,
              const AttentionGradientInput& gradient, const AttentionGradients& result,
              const ParallelFor& parallel_for) {
  if (result.d_sinks) add_sink_gradient(options, gradient, result.d_sinks);
  run_key_blocks(in, options, scale, gradient, result, nullptr, parallel_for);
}

void second_order(const AttentionInput& in, const AttentionOptions& options,
                  const ScaleTable& scale, const AttentionSecondOrderInput& second,
                  const AttentionGradients& result, const ParallelFor& parallel_for) {
  if (result.d_sinks) add_sink_gradient(options, second, result.d_sinks);
  const AttentionGradientInput gradient{second.output, second.statistics, second.d_output,
                                        second.d_statistics};
  run_key_blocks(in, options, scale, gradient, result, &second, parallel_for);
}

void tangent(const AttentionInput& in, const AttentionOptions& options, const ScaleTable& scale,
             const AttentionTangentInput& tangent, const AttentionTangentOutput& result,
             const ParallelFor& parallel_for) {
  const auto [batches, heads, queries, dim] = in.q.extents;
  const std::int64_t kv_heads = in.k.extents[1];
  const TilePlan plan =
      plan_forward(batches, kv_heads, heads / kv_heads, queries, in.k.extents[2], false);
  const QueryTangents query_tangents(in, scale, tangent.tangents, parallel_for);
  const TangentCall call{{in, options, scale, plan}, tangent, result, query_tangents};
  for_each_task(plan, parallel_for,
                [&](std::int64_t begin, std::int64_t end) { run_tangent(call, begin, end); });
}

void received(const AttentionInput& in, const AttentionOptions& options, const ScaleTable& scale,
              const KeyStatisticsRows& rows, const View<float, 3>& result,
              const ParallelFor& parallel_for) {
  const auto [batches, heads, queries, dim] = in.q.extents;
  const std::int64_t kv_heads = in.k.extents[1];
  const TilePlan plan = plan_received(batches, kv_heads, heads / kv_heads, queries, in.keys());
  const ReceivedCall call{{in, options, scale, plan}, rows, result};
  for_each_task(plan, parallel_for,
                [&](std::int64_t begin, std::int64_t end) { run_received(call, begin, end); });
}

void received_sequences(const AttentionInput& in, const AttentionOptions& options,
                        const KeyStatisticsRows& rows, const View<float, 3>& result,
                        const ParallelFor& parallel_for) {
  for (std::int64_t s = 0; s < in.sequences(); ++s) {
    const SequenceQueries queries = queries_of(in, s);
    const SequenceCall call = sequence_of(in, options, {.received = result}, s);
    clear_keys_past(result, s, keys_of(in, s));
    const ScaleTable scale(call.input, call.options, parallel_for);
    received(call.input, call.options, scale,
             {part_of(rows.lse, queries), part_of(rows.weights, queries)}, call.output.received,
             parallel_for);
  }
}

void weights_at_sequences(const AttentionInput& in, const AttentionOptions& options,
                          const View<const float, 3>& lse, const View<const std::int64_t, 4>& keys,
                          const KeyWeights& result, const ParallelFor& parallel_for) {
  for (std::int64_t s = 0; s < in.sequences(); ++s) {
    const SequenceQueries queries = queries_of(in, s);
    const SequenceCall call = sequence_of(in, options, {}, s);
    const ScaleTable scale(call.input, call.options, parallel_for);
    weights_at(call.input, call.options, scale, part_of(lse, queries), part_of(keys, queries),
               {part_of(result.weights, queries), part_of(result.by_score, queries),
                part_of(result.by_bias, queries)},
               parallel_for);
  }
}

}  // namespace isentrope::cpu
