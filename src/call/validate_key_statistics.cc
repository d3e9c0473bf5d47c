#include "src/call/array_overlaps.h"
#include "src/call/checks.h"
#include "src/call/validate.h"

namespace isentrope {

AttentionInput without_values(const AttentionInput& input) {
  AttentionInput result = input;
  result.v = input.k;
  result.v_scale = input.k_scale;
  return result;
}

void validate_received(const AttentionInput& in, const AttentionOptions& options,
                       const KeyStatisticsRows& rows, const View<float, 3>& result) {
  const Checks check("received");
  validate_input("received", in, options);
  const auto [batch, heads, queries, dim] = in.q.extents;
  check.shape("lse", rows.lse, Shape<3>{batch, heads, queries});
  check.shape_if_given("weights", rows.weights, Shape<3>{batch, heads, queries});
  check.output("received", result, Shape<3>{in.sequences(), heads, in.keys()});
  ArrayOverlaps arrays("received");
  add_inputs(arrays, in, options);
  arrays.read("lse", rows.lse);
  arrays.read("weights", rows.weights);
  arrays.write("received", result);
  validate_tables("received", in, options);
}

void validate_weights_at(const AttentionInput& in, const AttentionOptions& options,
                         const View<const float, 3>& lse, const View<const std::int64_t, 4>& keys,
                         const KeyWeights& result) {
  const Checks check("weights_at");
  validate_input("weights_at", in, options);
  const auto [batch, heads, queries, dim] = in.q.extents;
  const Shape<4> chosen = {batch, heads, queries, keys.extents[3]};
  check.shape("lse", lse, Shape<3>{batch, heads, queries});
  check.shape("keys", keys, chosen);
  check.output("weights", result.weights, chosen);
  check.output_if_given("by_score", result.by_score, chosen);
  check.output_if_given("by_bias", result.by_bias, chosen);
  ArrayOverlaps arrays("weights_at");
  add_inputs(arrays, in, options);
  arrays.read("lse", lse);
  arrays.read("keys", keys);
  arrays.write("weights", result.weights);
  arrays.write("by_score", result.by_score);
  arrays.write("by_bias", result.by_bias);
  validate_tables("weights_at", in, options);
}

}  // namespace isentrope
