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
  validate_input("received", in, options);
  ArrayOverlaps check("received");
  add_inputs(check, in, options);
  const auto [batch, heads, queries, dim] = in.q.extents;
  check.read("lse", rows.lse, Shape<3>{batch, heads, queries});
  check.read_if_given("weights", rows.weights, Shape<3>{batch, heads, queries});
  check.write("received", result, Shape<3>{in.sequences(), heads, in.keys()});
  validate_tables("received", in, options);
}

void validate_weights_at(const AttentionInput& in, const AttentionOptions& options,
                         const View<const float, 3>& lse, const View<const std::int64_t, 4>& keys,
                         const KeyWeights& result) {
  validate_input("weights_at", in, options);
  ArrayOverlaps check("weights_at");
  add_inputs(check, in, options);
  const auto [batch, heads, queries, dim] = in.q.extents;
  const Shape<4> chosen = {batch, heads, queries, keys.extents[3]};
  check.read("lse", lse, Shape<3>{batch, heads, queries});
  check.read("keys", keys, chosen);
  check.write("weights", result.weights, chosen);
  check.write_if_given("by_score", result.by_score, chosen);
  check.write_if_given("by_bias", result.by_bias, chosen);
  validate_tables("weights_at", in, options);
}

}  // namespace isentrope
