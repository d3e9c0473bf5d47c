// The dimensions that n vectors need, and the head size that follows (Su 2023, "the JL lemma").
//
// Domains: n in [1, 1e18], factor and dimensions in (0, 1e7], base in (1, 1e18]; otherwise Error.
#pragma once

#include <cstdint>

namespace isentrope::theory {

// Returns factor ln n, the Johnson-Lindenstrauss dimension; 8 is Su's estimate for embeddings.
[[nodiscard]] double jl_dimension(double n, double factor = 8);

// Returns e^(dim / factor), the number of vectors that fit in dim dimensions; Inf on overflow.
[[nodiscard]] double jl_capacity(double dim, double factor = 8);

// Returns d log_base n, the head size that suits n keys if a head of size d suits `base` keys.
// Multiplying the logit by log_base n is the cheap alternative.
[[nodiscard]] double matched_dimension(double n, double dim, double base = 512);

// Returns d / ln base, the factor of ln n in matched_dimension().
[[nodiscard]] double matched_factor(double dim, double base = 512);

// Returns 2 / k(1) = 8.312..., with the k(1) = 0.2406 of laplace_coefficient(). Pairs of n vectors
// in d dimensions have the entropy 2 ln n - k(1) d, which is 0 with this many dimensions per unit
// of ln n. It is the 8.33 = 2 / 0.24 of the formula "n > 8.33 log N", and the 8 of jl_dimension().
[[nodiscard]] double pair_dimension_factor();

}  // namespace isentrope::theory
