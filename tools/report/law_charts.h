// Charts of rules and laws for the pages.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "isentrope/scale_rule.h"
#include "isentrope/theory/sampled_gradient.h"
#include "tools/report/line_chart.h"

namespace isentrope::report {

// Rules compared at these lengths, for one head of a head dimension. A rule has one colour.
struct Comparison {
  std::vector<ScaleRule> rules;
  std::vector<std::int64_t> lengths;
  std::int64_t dim = 64, head = 0;

  [[nodiscard]] double lambda(const ScaleRule& rule, std::int64_t n) const;
  // Returns lambda sqrt(d): the factor on scores of unit variance.
  [[nodiscard]] double alpha(const ScaleRule& rule, std::int64_t n) const;
  // Returns spreads over sampled rows of n normal scores, the same rows for every rule. Empty for
  // rules with alpha above 60, the limit of the sample.
  [[nodiscard]] std::vector<std::optional<theory::GradientSpread>> spreads(std::int64_t n) const;
};

[[nodiscard]] LineChart scale_chart(const Comparison& comparison);
// Chart for normal scores, without rules with alpha above 60, the limit of these laws.
[[nodiscard]] LineChart mass_chart(const Comparison& comparison);
[[nodiscard]] LineChart starved_chart(const Comparison& comparison);
// Chart of the mean entropy of rows over keys on the sphere.
[[nodiscard]] LineChart entropy_chart(const Comparison& comparison);

// Chart of the optimum for n = 40, 80, ... 20000, its fit, and both figures of Su 2023.
[[nodiscard]] LineChart normal_optimum_chart();
[[nodiscard]] LineChart cosine_optimum_chart(std::int64_t dim);
[[nodiscard]] LineChart coefficient_chart();
// Chart of entropy against lambda at one n: the law, its estimates and the mean over rows.
[[nodiscard]] LineChart entropy_law_chart(double n, std::int64_t dim);
// Chart of 8 ln n and d log_512 n.
[[nodiscard]] LineChart dimension_chart(double dim);

}  // namespace isentrope::report
