// HTML pages of isentrope scale and isentrope theory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "isentrope/scale_rule.h"

namespace isentrope::report {

// Returns a page that compares rules: their scale, and its effect on rows of normal scores.
[[nodiscard]] std::string scale_page(const std::vector<ScaleRule>& rules,
                                     const std::vector<std::int64_t>& lengths, std::int64_t dim,
                                     std::int64_t head);

// Returns a page on why the scale should depend on n, from Var(q.k) = d to the gradient.
[[nodiscard]] std::string theory_page(std::int64_t dim);

}  // namespace isentrope::report
