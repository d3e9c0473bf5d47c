#pragma once

#include "bindings/ggml/settings.h"
#include "ggml.h"

namespace isentrope::ggml {

// Computes a node that supports() takes, on so many threads, and appends its statistics if the
// settings ask for them. Throws Error for a rule with numbers for another number of heads, and for
// statistics that cannot be written.
void compute(const ggml_tensor& node, const Settings& settings, int threads);

}  // namespace isentrope::ggml
