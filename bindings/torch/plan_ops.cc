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

// Returns decisions of a call on a device, by the names of src/call/device_plan.h. given: arguments
// besides q, k and v that are no defaults, {"name": number}; any number for a tensor.
std::string device_plan(std::int64_t heads, std::int64_t kv_heads, std::int64_t queries, bool paged,
                        const TorchText& given) {
  static constexpr std::int32_t kPage = 0;
  AttentionInput in;
  in.q.extents = {1, heads, queries, 1};
  in.k.extents = {1, kv_heads, 1, 1};
  if (paged) in.pages.block_table.data = &kPage;
  const AttentionOptions options = options_with(nlohmann::json::parse(given.view()));
  const DevicePlan plan = isentrope::device_plan(in, options);
  const nlohmann::ordered_json result{
#define ISENTROPE_FIELD(type, name, fallback) {#name, plan.name},
      ISENTROPE_DECISIONS(ISENTROPE_FIELD)
#undef ISENTROPE_FIELD
  };
  return result.dump();
}

}  // namespace

void define_plans(const Library& library) {
  library.anywhere<device_plan>(
      "device_plan(int heads, int kv_heads, int queries, bool paged, str given) -> str");
  library.anywhere<isentrope::shares_of>(
      "shares_of(int wave, int blocks, int keys, int tile) -> int");
}

}  // namespace isentrope::stable
