#include "bindings/jax/passes.h"

#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "isentrope/cuda/attention.h"
#include "isentrope/derivatives.h"
#include "isentrope/error.h"

namespace isentrope::jax {
namespace {

AttentionOptions options_of(Call& part, const ParallelFor& parallel_for) {
  AttentionOptions options = part.options();
  options.parallel_for = parallel_for;
  return options;
}

AttentionTangents tangents_of(const Call& part) {
  return {.q = part.tensor("t_q"),
          .k = part.tensor("t_k"),
          .v = part.tensor("t_v"),
          .bias = part.view<const float, 4>("t_bias"),
          .sinks = part.view<const float, 1>("t_sinks")};
}

AttentionOutput output_of(const Call& part) {
  return {part.tensor("output"), part.statistics<RowStatistics>("")};
}

AttentionGradientInput upstream_of(const Call& part) {
  return {.output = part.tensor("output"),
          .statistics = part.statistics<ConstRowStatistics>(""),
          .d_output = part.tensor("d_output"),
          .d_statistics = part.statistics<ConstRowStatistics>("d_")};
}

AttentionGradients gradients_of(const Call& part) {
  return {.dq = part.tensor("d_q"),
          .dk = part.tensor("d_k"),
          .dv = part.tensor("d_v"),
          .d_bias = part.view<float, 4>("d_bias"),
          .d_sinks = part.view<float, 1>("d_sinks")};
}

// Opens each device once. None is closed, because XLA may call until the process ends.
cuda::Place place_of(const Call& part, const OnDevice& on) {
  static std::mutex mutex;
  static auto& devices = *new std::map<std::pair<std::string, int>, cuda::Device>();
  const std::lock_guard lock(mutex);
  const std::string kernels = part.kernels();
  return {devices.try_emplace({kernels, on.ordinal}, kernels, on.ordinal).first->second, on.stream};
}

void must_be_absent(bool is_there, const std::string& what) {
  if (is_there) throw Error("[attention] " + what + " must be absent on a device; got it");
}

}  // namespace

void forward(Call& part, const ParallelFor& parallel_for) {
  if (part.in_float64()) return forward_in_float64(part);
  AttentionOutput out = output_of(part);
  const View<std::int32_t, 3> support = part.view<std::int32_t, 3>("support");
  const auto [batches, heads, queries] = part.rows();
  std::vector<std::int64_t> counts(support ? batches * heads * queries + 1 : 0);
  if (support) out.statistics.support = contiguous_view(counts.data(), part.rows());
  attention_forward(part.input(), options_of(part, parallel_for), out);
  for (std::int64_t batch = 0; support && batch < batches; ++batch)
    for (std::int64_t head = 0; head < heads; ++head)
      for (std::int64_t query = 0; query < queries; ++query)
        support(batch, head, query) =
            static_cast<std::int32_t>(out.statistics.support(batch, head, query));
}

void backward(Call& part, const ParallelFor& parallel_for) {
  if (part.in_float64()) return backward_in_float64(part);
  attention_backward(part.input(), options_of(part, parallel_for), upstream_of(part),
                     gradients_of(part));
}

void tangent(Call& part, const ParallelFor& parallel_for) {
  if (part.in_float64()) return tangent_in_float64(part);
  attention_tangent(part.input(), options_of(part, parallel_for),
                    {.output = part.tensor("output"),
                     .statistics = part.statistics<ConstRowStatistics>(""),
                     .tangents = tangents_of(part)},
                    {part.tensor("t_output"), part.statistics<RowStatistics>("t_")});
}

void second_order(Call& part, const ParallelFor& parallel_for) {
  if (part.in_float64()) return second_order_in_float64(part);
  attention_second_order(part.input(), options_of(part, parallel_for),
                         {.output = part.tensor("output"),
                          .statistics = part.statistics<ConstRowStatistics>(""),
                          .tangents = tangents_of(part),
                          .output_tangent = part.tensor("t_output"),
                          .statistic_tangents = part.statistics<ConstRowStatistics>("t_"),
                          .d_output = part.tensor("d_output"),
                          .d_statistics = part.statistics<ConstRowStatistics>("d_")},
                         gradients_of(part));
}

void forward_on_device(Call& part, const OnDevice& on) {
  must_be_absent(part.in_float64(), "float64");
  // It is counted in int64 there.
  must_be_absent(static_cast<bool>(part.view<std::int32_t, 3>("support")), "support");
  cuda::attention_forward(part.input(), part.options(), output_of(part), place_of(part, on));
}

void backward_on_device(Call& part, const OnDevice& on) {
  must_be_absent(part.in_float64(), "float64");
  cuda::attention_backward(part.input(), part.options(), upstream_of(part), gradients_of(part),
                           place_of(part, on));
}

}  // namespace isentrope::jax
