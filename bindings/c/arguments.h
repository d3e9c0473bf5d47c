// Arguments of the library's functions, read from the structs of the C interface.
#pragma once

#include "isentrope/attention.h"
#include "isentrope/derivatives.h"
#include "isentrope/isentrope.h"
#include "isentrope/key_statistics.h"

namespace isentrope::c_api {

struct ForwardArguments {
  AttentionInput input;
  AttentionOptions options;
  AttentionOutput output;
};

struct BackwardArguments {
  AttentionInput input;
  AttentionOptions options;
  AttentionGradientInput gradient;
  AttentionGradients result;
};

struct ReceivedArguments {
  AttentionInput input;
  AttentionOptions options;
  KeyStatisticsRows rows;
  View<float, 3> result;
};

struct TangentArguments {
  AttentionInput input;
  AttentionOptions options;
  AttentionTangentInput tangent;
  AttentionTangentOutput result;
};

struct SecondOrderArguments {
  AttentionInput input;
  AttentionOptions options;
  AttentionSecondOrderInput second;
  AttentionGradients result;
};

struct WeightsAtArguments {
  AttentionInput input;
  AttentionOptions options;
  View<const float, 3> lse;
  View<const std::int64_t, 4> keys;
  KeyWeights result;
};

// Throw Error if a pointer is NULL, or a struct or an array is malformed. Do not read arrays.
[[nodiscard]] ForwardArguments forward_arguments(const char* function,
                                                 const isentrope_options* options,
                                                 const isentrope_forward_call* call);
[[nodiscard]] BackwardArguments backward_arguments(const char* function,
                                                   const isentrope_options* options,
                                                   const isentrope_backward_call* call);
[[nodiscard]] TangentArguments tangent_arguments(const char* function,
                                                 const isentrope_options* options,
                                                 const isentrope_tangent_call* call);
[[nodiscard]] SecondOrderArguments second_order_arguments(const char* function,
                                                          const isentrope_options* options,
                                                          const isentrope_second_order_call* call);

[[nodiscard]] ReceivedArguments received_arguments(const char* function,
                                                   const isentrope_options* options,
                                                   const isentrope_received_call* call);
[[nodiscard]] WeightsAtArguments weights_at_arguments(const char* function,
                                                      const isentrope_options* options,
                                                      const isentrope_weights_at_call* call);

}  // namespace isentrope::c_api
