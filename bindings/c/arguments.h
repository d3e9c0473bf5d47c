// Arguments of the library's functions, read from the structs of the C interface.
#pragma once

#include <tuple>

#include "isentrope/attention.h"
#include "isentrope/derivatives.h"
#include "isentrope/isentrope.h"
#include "isentrope/key_statistics.h"

namespace isentrope::c_api {

template <typename... Rest>
using Arguments = std::tuple<AttentionInput, AttentionOptions, Rest...>;

// Throw Error if a pointer is NULL, or a struct or an array is malformed. Do not read arrays.
[[nodiscard]] Arguments<AttentionOutput> arguments_of(const char* function,
                                                      const isentrope_options* options,
                                                      const isentrope_forward_call* call);
[[nodiscard]] Arguments<AttentionGradientInput, AttentionGradients> arguments_of(
    const char* function, const isentrope_options* options, const isentrope_backward_call* call);
[[nodiscard]] Arguments<AttentionTangentInput, AttentionTangentOutput> arguments_of(
    const char* function, const isentrope_options* options, const isentrope_tangent_call* call);
[[nodiscard]] Arguments<AttentionSecondOrderInput, AttentionGradients> arguments_of(
    const char* function, const isentrope_options* options,
    const isentrope_second_order_call* call);
[[nodiscard]] Arguments<KeyStatisticsRows, View<float, 3>> arguments_of(
    const char* function, const isentrope_options* options, const isentrope_received_call* call);
[[nodiscard]] Arguments<View<const float, 3>, View<const std::int64_t, 4>, KeyWeights> arguments_of(
    const char* function, const isentrope_options* options, const isentrope_weights_at_call* call);

}  // namespace isentrope::c_api
