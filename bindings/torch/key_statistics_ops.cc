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

TorchTensor received_in(const CallArguments& call, const AttentionInput& cache,
                        const TorchTensor& lse, const TorchTensor& weights) {
  const AttentionInput in = without_values(cache);
  const AttentionOptions options = call.options();
  validate("received", in, options);
  const std::array extents{in.sequences(), in.q.extents[1], in.keys()};
  TorchTensor result;
  if (is_float64(call.q)) {
    received_in_float64(InputInFloat64(call, in).input, options,
                        view_of<double, 3>("weights", weights), allocate<double>(result, extents));
  } else {
    isentrope::received(in, options,
                        {view_of<float, 3>("lse", lse), view_of<float, 3>("weights", weights)},
                        allocate<float>(result, extents));
  }
  return result;
}

TorchTensor received(const CallArguments& call, const TorchTensor& lse,
                     const OptionalTensor& weights) {
  return received_in(call, shapes_of(call), lse, weights);
}

TorchTensor received_paged(const CallArguments& call, const TorchTensor& lse,
                           const OptionalTensor& weights, const OptionalTensor& k_scale,
                           Sequences& sequences) {
  return received_in(call, over_cache(call, k_scale, k_scale, sequences), lse, weights);
}

// Returns weights of chosen keys, and derivatives of their logits.
std::array<TorchTensor, 3> weights_in(const CallArguments& call, const AttentionInput& cache,
                                      const TorchTensor& lse, const TorchTensor& chosen) {
  const auto keys = view_of<std::int64_t, 4>("keys", chosen);
  const AttentionInput in = without_values(cache);
  const AttentionOptions options = call.options();
  validate("weights_at", in, options);
  std::array<TorchTensor, 3> results;
  if (is_float64(call.q)) {
    const reference::KeyWeights weights =
        reference::weights_at(InputInFloat64(call, in).input, options, keys);
    auto result = results.begin();
    for (const auto* numbers : {&weights.weights, &weights.by_score, &weights.by_bias})
      std::ranges::copy(*numbers, allocate<double>(*result++, keys.extents).data);
  } else {
    isentrope::weights_at(
        in, options, view_of<float, 3>("lse", lse), keys,
        {allocate<float>(results[0], keys.extents), allocate<float>(results[1], keys.extents),
         allocate<float>(results[2], keys.extents)});
  }
  return results;
}

std::array<TorchTensor, 3> weights_at(const CallArguments& call, const TorchTensor& lse,
                                      const TorchTensor& keys) {
  return weights_in(call, shapes_of(call), lse, keys);
}

std::array<TorchTensor, 3> weights_at_paged(const CallArguments& call, const TorchTensor& lse,
                                            const TorchTensor& keys, const OptionalTensor& k_scale,
                                            Sequences& sequences) {
  return weights_in(call, over_cache(call, k_scale, k_scale, sequences), lse, keys);
}

}  // namespace

void define_key_statistics(const Library& library) {
  const std::string call = "(" + call_schema() + ", Tensor lse, ", paged = Sequences::kSchema;
  library.on_cpu<received>("received" + call + "Tensor? weights) -> Tensor");
  library.on_cpu<received_paged>("received_paged" + call + "Tensor? weights, Tensor? k_scale" +
                                 paged + ") -> Tensor");
  const std::string results = ") -> (Tensor weights, Tensor by_score, Tensor by_bias)";
  library.on_cpu<weights_at>("weights_at" + call + "Tensor keys" + results);
  library.on_cpu<weights_at_paged>("weights_at_paged" + call + "Tensor keys, Tensor? k_scale" +
                                   paged + results);
}

}  // namespace isentrope::stable
