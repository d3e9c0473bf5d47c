// Operators on statistics of keys: the weights that keys receive, and weights of chosen keys.

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "bindings/torch/batches.h"
#include "bindings/torch/call.h"
#include "bindings/torch/float64.h"
#include "bindings/torch/operators.h"
#include "bindings/torch/sequences.h"
#include "bindings/torch/threads.h"
#include "isentrope/key_statistics.h"
#include "src/call/validate.h"

namespace isentrope::stable {
namespace {

// A row-major result of zeros, in which sequences shorter than the longest leave zeros.
template <typename Float, std::size_t Rank>
View<Float, Rank> zeros(TorchTensor& result, const std::array<std::int64_t, Rank>& extents) {
  result = TorchTensor(extents, dtype_of_numbers<Float>());
  std::int64_t count = 1;
  for (const std::int64_t extent : extents) count *= extent;
  auto* data = static_cast<Float*>(result.write());
  std::fill_n(data, count, Float{});
  return contiguous_view(data, extents);
}

template <typename Float>
View<Float, 3> sequence_of(View<Float, 3> result, std::int64_t batch, std::int64_t keys) {
  result.data += batch * result.strides[0];
  result.extents = {1, result.extents[1], keys};
  return result;
}

// Arguments of an operator over a cache.
class CacheCall {
 public:
  CacheCall(const CallArguments& call, const TorchTensor& k_scale, Sequences& sequences)
      : options(call.options()), keys(sequences.keys()) {
    if (k_scale) {
      in.q = number_view("q", call.q);
      in.k = view_of<std::int8_t, 4>("k", call.k);
      in.k_scale = view_of<float, 4>("k_scale", k_scale);
    } else {
      in = shapes_of(call);
    }
    in = without_values(in);
    sequences.put_pages(in);
    sequences.validate(in, options);
  }

  // Calls visit(input, options, batch) for each sequence, as a call of its own.
  template <typename Visit>
  void for_each_sequence(const Visit& visit) const {
    for (std::int64_t batch = 0; batch < in.q.extents[0]; ++batch)
      visit(batch_of(in, batch, keys(batch)), batch_of(options, batch), batch);
  }

  AttentionInput in;
  const AttentionOptions options;
  const View<const std::int64_t, 1> keys;
};

// The reference takes lse from the rows themselves.
void received_in_float64(const reference::Input& in, const AttentionOptions& options,
                         const View<const double, 3>& weights, const View<double, 3>& result) {
  std::vector<double> of_rows;
  for (std::int64_t batch = 0; batch < in.q.extents[0]; ++batch)
    for (std::int64_t head = 0; head < in.q.extents[1]; ++head)
      for (std::int64_t query = 0; query < in.q.extents[2]; ++query)
        of_rows.push_back(weights ? weights(batch, head, query) : 1);
  const auto sums = reference::received(in, options, {std::move(of_rows)});
  auto next = sums.front().begin();
  for (std::int64_t batch = 0; batch < in.q.extents[0]; ++batch)
    for (std::int64_t head = 0; head < in.q.extents[1]; ++head)
      for (std::int64_t key = 0; key < in.k.extents[2]; ++key) result(batch, head, key) = *next++;
}

// Weights of chosen keys, and derivatives of their logits, as tensors of the call's precision.
template <typename Float>
struct ChosenWeights {
  explicit ChosenWeights(const std::array<std::int64_t, 4>& extents) {
    for (std::size_t i = 0; i < views.size(); ++i) views[i] = zeros<Float>(results[i], extents);
  }

  [[nodiscard]] KeyWeights of(std::int64_t batch) const {
    return {batch_of(views[0], batch), batch_of(views[1], batch), batch_of(views[2], batch)};
  }
  // Copies results of the batches from `batch` on.
  void put(const reference::KeyWeights& from, std::int64_t batch) const {
    const auto first = batch * views[0].strides[0];
    std::ranges::copy(from.weights, views[0].data + first);
    std::ranges::copy(from.by_score, views[1].data + first);
    std::ranges::copy(from.by_bias, views[2].data + first);
  }
  void put_on(StableIValue* stack) {
    for (std::size_t i = 0; i < results.size(); ++i) stack[i] = to_value(std::move(results[i]));
  }

  std::array<TorchTensor, 3> results;
  std::array<View<Float, 4>, 3> views;
};

}  // namespace

void received(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Arguments from(stack);
  const CallArguments call(from);
  const TorchTensor lse = from.tensor(), weights = from.optional_tensor();
  const AttentionInput in = without_values(shapes_of(call));
  const AttentionOptions options = call.options();
  validate_input("received", in, options);
  validate_tables("received", in, options);
  const std::array extents{in.q.extents[0], in.q.extents[1], in.k.extents[2]};
  TorchTensor result;
  if (is_float64(call.q)) {
    received_in_float64(call.input_in_float64(), options, view_of<double, 3>("weights", weights),
                        zeros<double>(result, extents));
  } else {
    isentrope::received(in, options,
                        {view_of<float, 3>("lse", lse), view_of<float, 3>("weights", weights)},
                        zeros<float>(result, extents));
  }
  stack[0] = to_value(std::move(result));
}

void received_paged(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Arguments from(stack);
  const CallArguments call(from);
  const TorchTensor lse = from.tensor(), weights = from.optional_tensor(),
                    k_scale = from.optional_tensor();
  Sequences sequences("received", from);
  const CacheCall cache(call, k_scale, sequences);
  const std::array extents{cache.in.q.extents[0], cache.in.q.extents[1],
                           sequences.most_keys(cache.in)};
  TorchTensor result;
  if (is_float64(call.q)) {
    const auto of_rows = view_of<double, 3>("weights", weights);
    const View<double, 3> sums = zeros<double>(result, extents);
    cache.for_each_sequence(
        [&](const AttentionInput& in, const AttentionOptions& options, std::int64_t batch) {
          const SequenceInFloat64 sequence(call, cache.in.pages.block_table, batch, in.pages.keys);
          received_in_float64(sequence.input, options, batch_of(of_rows, batch),
                              sequence_of(sums, batch, in.pages.keys));
        });
  } else {
    const auto of_lse = view_of<float, 3>("lse", lse),
               of_rows = view_of<float, 3>("weights", weights);
    const View<float, 3> sums = zeros<float>(result, extents);
    cache.for_each_sequence(
        [&](const AttentionInput& in, const AttentionOptions& options, std::int64_t batch) {
          isentrope::received(in, options, {batch_of(of_lse, batch), batch_of(of_rows, batch)},
                              sequence_of(sums, batch, in.pages.keys));
        });
  }
  stack[0] = to_value(std::move(result));
}

void weights_at(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Arguments from(stack);
  const CallArguments call(from);
  const TorchTensor lse = from.tensor(), chosen = from.tensor();
  const auto keys = view_of<std::int64_t, 4>("keys", chosen);
  const AttentionInput in = without_values(shapes_of(call));
  const AttentionOptions options = call.options();
  validate_input("weights_at", in, options);
  validate_tables("weights_at", in, options);
  if (is_float64(call.q)) {
    ChosenWeights<double> results(keys.extents);
    results.put(reference::weights_at(call.input_in_float64(), options, keys), 0);
    return results.put_on(stack);
  }
  ChosenWeights<float> results(keys.extents);
  isentrope::weights_at(in, options, view_of<float, 3>("lse", lse), keys,
                        {results.views[0], results.views[1], results.views[2]});
  results.put_on(stack);
}

void weights_at_paged(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Arguments from(stack);
  const CallArguments call(from);
  const TorchTensor lse = from.tensor(), chosen = from.tensor(), k_scale = from.optional_tensor();
  Sequences sequences("weights_at", from);
  const auto keys = view_of<std::int64_t, 4>("keys", chosen);
  const CacheCall cache(call, k_scale, sequences);
  if (is_float64(call.q)) {
    ChosenWeights<double> results(keys.extents);
    cache.for_each_sequence(
        [&](const AttentionInput& in, const AttentionOptions& options, std::int64_t batch) {
          const SequenceInFloat64 sequence(call, cache.in.pages.block_table, batch, in.pages.keys);
          results.put(reference::weights_at(sequence.input, options, batch_of(keys, batch)), batch);
        });
    return results.put_on(stack);
  }
  ChosenWeights<float> results(keys.extents);
  const auto of_lse = view_of<float, 3>("lse", lse);
  cache.for_each_sequence(
      [&](const AttentionInput& in, const AttentionOptions& options, std::int64_t batch) {
        isentrope::weights_at(in, options, batch_of(of_lse, batch), batch_of(keys, batch),
                              results.of(batch));
      });
  results.put_on(stack);
}

}  // namespace isentrope::stable
