// The peak of bf16 dot products, which Highway does not have.
#pragma once

#include <cstddef>

namespace isentrope::bf16 {

// Whether this CPU has them.
[[nodiscard]] bool is_supported();

// Runs `times` rounds of independent dot products in registers; returns the multiplications and
// additions of a round.
std::size_t run_dot_products(std::size_t times);

}  // namespace isentrope::bf16
