// How many dimensions n vectors need, and what that says of the head size (Su 2023, "the JL
// lemma").
//
// Domains: n in [1, 1e18], factor and dimensions in (0, 1e7], base in (1, 1e18]; Error otherwise.
#pragma once

#include <cstdint>

namespace isentrope::theory {

// 8 ln n: the Johnson-Lindenstrauss dimension with the constant of Su's estimate of embedding
// sizes.
[[nodiscard]] double jl_dimension(double n, double factor = 8);

// e^(d / 8): how many vectors d dimensions hold. Infinite where that overflows.
[[nodiscard]] double jl_capacity(double dim, double factor = 8);

// d_n = d log_base n: the head size that would suit n keys, for a head of d that suits `base` of
// them. Multiplying the logit by d_n / d = log_base n is the cheap alternative.
[[nodiscard]] double matched_dimension(double n, double dim, double base = 512);

}  // namespace isentrope::theory
