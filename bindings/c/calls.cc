#include <algorithm>
#include <cstddef>
#include <string>
#include <tuple>
#include <vector>

#include "bindings/c/arguments.h"
#include "bindings/c/options.h"
#include "isentrope/quantize.h"
#include "isentrope/target.h"
#include "isentrope/write_cache.h"

using namespace isentrope;  // NOLINT: the C interface follows, name by name
using namespace isentrope::c_api;

namespace {

template <typename Function, typename Call>
isentrope_status run(const char* name, Function* function, const isentrope_options* options,
                     const Call* call) {
  return guarded([&] { std::apply(function, arguments_of(name, options, call)); });
}

}  // namespace

isentrope_status isentrope_forward(const isentrope_options* options,
                                   const isentrope_forward_call* call) {
  return run("isentrope_forward", attention_forward, options, call);
}

isentrope_status isentrope_backward(const isentrope_options* options,
                                    const isentrope_backward_call* call) {
  return run("isentrope_backward", attention_backward, options, call);
}

isentrope_status isentrope_tangent(const isentrope_options* options,
                                   const isentrope_tangent_call* call) {
  return run("isentrope_tangent", attention_tangent, options, call);
}

isentrope_status isentrope_second_order(const isentrope_options* options,
                                        const isentrope_second_order_call* call) {
  return run("isentrope_second_order", attention_second_order, options, call);
}

isentrope_status isentrope_received(const isentrope_options* options,
                                    const isentrope_received_call* call) {
  return run("isentrope_received", received, options, call);
}

isentrope_status isentrope_weights_at(const isentrope_options* options,
                                      const isentrope_weights_at_call* call) {
  return run("isentrope_weights_at", weights_at, options, call);
}

isentrope_status isentrope_quantize(const isentrope_array* rows, const isentrope_array* codes,
                                    const isentrope_array* scales) {
  return guarded([&] {
    constexpr const char* kFunction = "isentrope_quantize";
    quantize(tensor_of(kFunction, "rows", required(kFunction, "rows", rows)),
             view_of<std::int8_t, 4>(kFunction, "codes", required(kFunction, "codes", codes)),
             view_of<float, 4>(kFunction, "scales", required(kFunction, "scales", scales)));
  });
}

isentrope_status isentrope_write_cache(const isentrope_array* k, const isentrope_array* v,
                                       const isentrope_array* k_cache,
                                       const isentrope_array* v_cache,
                                       const isentrope_array* slot_mapping) {
  return guarded([&] {
    constexpr const char* kFunction = "isentrope_write_cache";
    const auto tensor = [&](const char* name, const isentrope_array* array) {
      return tensor_of(kFunction, name, required(kFunction, name, array));
    };
    write_cache(tensor("k", k), tensor("v", v), tensor("k_cache", k_cache),
                tensor("v_cache", v_cache),
                view_of<const std::int64_t, 1>(kFunction, "slot_mapping",
                                               required(kFunction, "slot_mapping", slot_mapping)));
  });
}

isentrope_status isentrope_rule_lambda(const char* text, int64_t keys, int64_t dim, int64_t head,
                                       double* lambda) {
  return guarded([&] {
    constexpr const char* kFunction = "isentrope_rule_lambda";
    const ScaleRule rule = ScaleRule::parse(&required(kFunction, "text", text));
    double& to = required(kFunction, "lambda", lambda);
    if (keys < 0) fail(kFunction, "keys", "not be negative", std::to_string(keys));
    to = rule.lambda(
        {.visible = keys, .position = std::max<std::int64_t>(keys - 1, 0), .total = keys}, dim,
        head);
  });
}

const char* isentrope_target(int32_t index) {
  const char* found = nullptr;
  guarded([&] {
    static const std::vector<std::string> names = supported_targets();
    if (index >= 0 && index < static_cast<std::int32_t>(names.size()))
      found = names[static_cast<std::size_t>(index)].c_str();
  });
  return found;
}

const char* isentrope_active_target(void) {
  // Points to one of isentrope_target(), which outlives every call.
  const char* found = nullptr;
  guarded([&] {
    const std::string active = active_target();
    for (std::int32_t i = 0; isentrope_target(i) != nullptr; ++i) {
      if (active == isentrope_target(i)) found = isentrope_target(i);
    }
  });
  return found;
}

isentrope_status isentrope_use_target(const char* name) {
  return guarded([&] { use_target(&required("isentrope_use_target", "name", name)); });
}

const char* isentrope_version(void) { return ISENTROPE_VERSION; }
