// The peak of bf16 dot products.
#pragma once

#include <cstddef>

namespace isentrope::bf16 {

// Only where is_supported() of bf16_pairs.h says so. Runs `times` rounds of independent dot
// products in registers; returns the multiplications and additions of a round.
std::size_t run_dot_products(std::size_t times);

}  // namespace isentrope::bf16
