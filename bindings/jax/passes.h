// The passes that JAX calls, on the arrays of a call.
#pragma once

#include "bindings/jax/call.h"

namespace isentrope::jax {

// parallel_for runs tasks as the call's context does.
void forward(Call& part, const ParallelFor& parallel_for);
void backward(Call& part, const ParallelFor& parallel_for);
void tangent(Call& part, const ParallelFor& parallel_for);
void second_order(Call& part, const ParallelFor& parallel_for);

// The same on an NVIDIA device, unmeasured.
struct OnDevice {
  void* stream;
  int ordinal;
};
void forward_on_device(Call& part, const OnDevice& on);
void backward_on_device(Call& part, const OnDevice& on);

// The same by the float64 reference, in one thread.
void forward_in_float64(Call& part);
void backward_in_float64(Call& part);
void tangent_in_float64(Call& part);
void second_order_in_float64(Call& part);

}  // namespace isentrope::jax
