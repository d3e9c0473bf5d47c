// Operators on statistics of keys: the weights that keys receive, and weights of chosen keys.

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "bindings/torch/call.h"
#include "bindings/torch/float64.h"
#include "bindings/torch/operators.h"
#include "bindings/torch/sequences.h"
#include "bindings/torch/threads.h"
#include "isentrope/key_statistics.h"
#include "src/call/validate.h"

namespace isentrope::stable {
namespace {

template <typename Float, std::size_t Rank>
View<Float, Rank> allocate(TorchTensor& result, const std::array<std::int64_t, Rank>& extents) {
  result = TorchTensor(extents, dtype_of_numbers<Float>());
  return contiguous_view(static_cast<Float*>(result.write()), extents);
}

// Checks the call before results are allocated.
void validate(const char* function, const AttentionInput& in, const AttentionOptions& options) {
  validate_input(function, in, options);
  validate_tables(function, in, options);
}

// The reference takes lse from the rows themselves.
void received_in_float64(const reference::Input& in, const AttentionOptions& options,
                         const View<const double, 3>& weights, const View<double, 3>& result) {
  std::vector<double> of_rows;
  for (std::int64_t batch = 0; batch < in.q.extents[0]; ++batch)
    for (std::int64_t head = 0; head < in.q.extents[1]; ++head)
      for (std::int64_t query = 0; query < in.q.extents[2]; ++query)
        of_rows.push_back(weights ? weights(batch, head, query) : 1);
  std::ranges::copy(reference::received(in, options, {std::move(of_rows)}).front(), result.data);
}

// Puts weights of chosen keys, and derivatives of their logits, on the stack.
void put_weights_in_float64(const reference::Input& in, const AttentionOptions& options,
                            const View<const std::int64_t, 4>& keys, StableIValue* stack) {
  const reference::KeyWeights weights = reference::weights_at(in, options, keys);
  for (const auto* numbers : {&weights.weights, &weights.by_score, &weights.by_bias}) {
    TorchTensor result;
    std::ranges::copy(*numbers, allocate<double>(result, keys.extents).data);
    *stack++ = to_value(std::move(result));
  }
}

void put_weights(const AttentionInput& in, const AttentionOptions& options,
                 const View<const float, 3>& lse, const View<const std::int64_t, 4>& keys,
                 StableIValue* stack) {
  std::array<TorchTensor, 3> results;
  isentrope::weights_at(
      in, options, lse, keys,
      {allocate<float>(results[0], keys.extents), allocate<float>(results[1], keys.extents),
       allocate<float>(results[2], keys.extents)});
  for (TorchTensor& result : results) *stack++ = to_value(std::move(result));
}

}  // namespace

void received(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Arguments from(stack);
  const CallArguments call(from);
  const TorchTensor lse = from.tensor(), weights = from.optional_tensor();
  const AttentionInput in = without_values(shapes_of(call));
  const AttentionOptions options = call.options();
  validate("received", in, options);
  const std::array extents{in.q.extents[0], in.q.extents[1], in.k.extents[2]};
  TorchTensor result;
  if (is_float64(call.q)) {
    received_in_float64(call.input_in_float64(), options, view_of<double, 3>("weights", weights),
                        allocate<double>(result, extents));
  } else {
    isentrope::received(in, options,
                        {view_of<float, 3>("lse", lse), view_of<float, 3>("weights", weights)},
                        allocate<float>(result, extents));
  }
  stack[0] = to_value(std::move(result));
}

void received_paged(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Arguments from(stack);
  const CallArguments call(from);
  const TorchTensor lse = from.tensor(), weights = from.optional_tensor(),
                    k_scale = from.optional_tensor();
  Sequences sequences(from);
  const AttentionInput in = without_values(over_cache(call, k_scale, k_scale, sequences));
  const AttentionOptions options = call.options();
  validate("received", in, options);
  const std::array extents{in.sequences(), in.q.extents[1], in.keys()};
  TorchTensor result;
  if (is_float64(call.q)) {
    received_in_float64(CacheInFloat64(call, in).input, options,
                        view_of<double, 3>("weights", weights), allocate<double>(result, extents));
  } else {
    isentrope::received(in, options,
                        {view_of<float, 3>("lse", lse), view_of<float, 3>("weights", weights)},
                        allocate<float>(result, extents));
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
  validate("weights_at", in, options);
  if (is_float64(call.q))
    return put_weights_in_float64(call.input_in_float64(), options, keys, stack);
  put_weights(in, options, view_of<float, 3>("lse", lse), keys, stack);
}

void weights_at_paged(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Arguments from(stack);
  const CallArguments call(from);
  const TorchTensor lse = from.tensor(), chosen = from.tensor(), k_scale = from.optional_tensor();
  Sequences sequences(from);
  const auto keys = view_of<std::int64_t, 4>("keys", chosen);
  const AttentionInput in = without_values(over_cache(call, k_scale, k_scale, sequences));
  const AttentionOptions options = call.options();
  validate("weights_at", in, options);
  if (is_float64(call.q))
    return put_weights_in_float64(CacheInFloat64(call, in).input, options, keys, stack);
  put_weights(in, options, view_of<float, 3>("lse", lse), keys, stack);
}

}  // namespace isentrope::stable
