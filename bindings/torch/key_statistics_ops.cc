// Operators on statistics of keys: the weights that keys receive.

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

using Extents = std::array<std::int64_t, 3>;

// Numbers of rows in the call's precision.
template <typename Float>
struct RowNumbers {
  View<const Float, 3> lse{}, weights{};
};

template <typename Float>
RowNumbers<Float> row_numbers(const TorchTensor& lse, const TorchTensor& weights) {
  return {view_of<Float, 3>("lse", lse), view_of<Float, 3>("weights", weights)};
}

// Computes one call in float64. The reference takes lse from the rows themselves.
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

// A result of zeros, in which sequences shorter than the longest leave zeros.
template <typename Float>
View<Float, 3> zeros(TorchTensor& result, const Extents& extents) {
  result = TorchTensor(extents, dtype_of_numbers<Float>());
  auto* data = static_cast<Float*>(result.write());
  std::fill_n(data, extents[0] * extents[1] * extents[2], Float{});
  return contiguous_view(data, extents);
}

template <typename Float>
View<Float, 3> sequence_of(View<Float, 3> result, std::int64_t batch, std::int64_t keys) {
  result.data += batch * result.strides[0];
  result.extents = {1, result.extents[1], keys};
  return result;
}

}  // namespace

void received(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Arguments from(stack);
  const CallArguments call(from);
  const TorchTensor lse = from.tensor(), weights = from.optional_tensor();
  const AttentionInput in = without_values(shapes_of(call));
  const AttentionOptions options = call.options();
  validate_input("received", in, options);
  validate_tables("received", in, options);
  const Extents extents{in.q.extents[0], in.q.extents[1], in.k.extents[2]};
  TorchTensor result;
  if (is_float64(call.q)) {
    received_in_float64(call.input_in_float64(), options,
                        row_numbers<double>(lse, weights).weights, zeros<double>(result, extents));
  } else {
    const auto [of_lse, of_weights] = row_numbers<float>(lse, weights);
    isentrope::received(in, options, {of_lse, of_weights}, zeros<float>(result, extents));
  }
  stack[0] = to_value(std::move(result));
}

void received_paged(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Arguments from(stack);
  const CallArguments call(from);
  const TorchTensor lse = from.tensor(), weights = from.optional_tensor(),
                    k_scale = from.optional_tensor();
  Sequences sequences("received", from);
  AttentionInput in;
  if (k_scale) {
    in.q = number_view("q", call.q);
    in.k = view_of<std::int8_t, 4>("k", call.k);
    in.k_scale = view_of<float, 4>("k_scale", k_scale);
  } else {
    in = shapes_of(call);
  }
  in = without_values(in);
  const AttentionOptions options = call.options();
  sequences.put_pages(in);
  sequences.validate(in, options);
  const Extents extents{in.q.extents[0], in.q.extents[1], sequences.most_keys(in)};
  const auto keys = sequences.keys();
  TorchTensor result;
  if (is_float64(call.q)) {
    const auto of_rows = row_numbers<double>(lse, weights);
    const View<double, 3> sums = zeros<double>(result, extents);
    for (std::int64_t batch = 0; batch < extents[0]; ++batch) {
      const SequenceInFloat64 sequence(call, in.pages.block_table, batch, keys(batch));
      received_in_float64(sequence.input, batch_of(options, batch),
                          batch_of(of_rows.weights, batch),
                          sequence_of(sums, batch, keys(batch)));
    }
  } else {
    const auto [of_lse, of_weights] = row_numbers<float>(lse, weights);
    const View<float, 3> sums = zeros<float>(result, extents);
    for (std::int64_t batch = 0; batch < extents[0]; ++batch) {
      isentrope::received(batch_of(in, batch, keys(batch)), batch_of(options, batch),
                          {batch_of(of_lse, batch), batch_of(of_weights, batch)},
                          sequence_of(sums, batch, keys(batch)));
    }
  }
  stack[0] = to_value(std::move(result));
}

}  // namespace isentrope::stable
