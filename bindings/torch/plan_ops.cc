// Operators on decisions of calls on a device, which kernels in Python share with those of C++.

#include <nlohmann/json.hpp>
#include <type_traits>

#include "bindings/torch/call.h"
#include "bindings/torch/operators.h"
#include "src/call/arguments.h"
#include "src/call/device_plan.h"

namespace isentrope::stable {
namespace {

// Sets the arguments that a call has: numbers to their values, arrays to a place that nobody reads.
AttentionOptions options_with(const nlohmann::json& given) {
  static constexpr double kPlace = 0;
  AttentionOptions options;
  for_each_argument(options, [&](std::string_view name, auto& argument) {
    using Argument = std::remove_reference_t<decltype(argument)>;
    const auto found = given.find(name_in_python(name));
    if (found == given.end()) return;
    if constexpr (requires { argument.strides; }) {
      argument.data = reinterpret_cast<decltype(argument.data)>(&kPlace);
    } else if constexpr (std::is_same_v<Argument, Causal>) {
      argument = causal_of(found->template get<std::int64_t>());
    } else if constexpr (std::is_same_v<Argument, std::int64_t>) {
      argument = found->template get<std::int64_t>();
    }
  });
  return options;
}

}  // namespace

void device_plan(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Arguments from(stack);
  const std::int64_t heads = from.integer(), kv_heads = from.integer(), queries = from.integer();
  const bool paged = from.integer() != 0;
  const TorchText given = from.text();
  static constexpr std::int32_t kPage = 0;
  AttentionInput in;
  in.q.extents = {1, heads, queries, 1};
  in.k.extents = {1, kv_heads, 1, 1};
  if (paged) in.pages.block_table.data = &kPage;
  const AttentionOptions options = options_with(nlohmann::json::parse(given.view()));
  const DevicePlan plan = isentrope::device_plan(in, options);
  const nlohmann::ordered_json result{
      {"packed", plan.packed},           {"lanes", plan.lanes},
      {"length", plan.length},           {"masked", plan.masked},
      {"dilation", plan.dilation},       {"rows_differ", plan.rows_differ},
      {"keys_differ", plan.keys_differ}, {"moments_checked", plan.moments_checked},
      {"own_is_last", plan.own_is_last}, {"by_batch", plan.by_batch},
      {"by_head", plan.by_head}};
  stack[0] = to_value(result.dump());
}

void shares_of(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Arguments from(stack);
  const std::int64_t wave = from.integer(), blocks = from.integer();
  const std::int64_t keys = from.integer(), tile = from.integer();
  stack[0] = static_cast<StableIValue>(isentrope::shares_of(wave, blocks, keys, tile));
}

}  // namespace isentrope::stable
