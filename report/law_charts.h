// Charts of rules and laws for the pages.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "isentrope/scale_rule.h"
#include "isentrope/theory/sampled_gradient.h"
#include "report/line_chart.h"

namespace isentrope::report {

// How rules are compared: at these lengths, for one head of a head dimension. A rule keeps its
// colour.
struct Comparison {
  std::vector<ScaleRule> rules;
  std::vector<std::int64_t> lengths;
  std::int64_t dim = 64, head = 0;

  [[nodiscard]] double lambda(const ScaleRule& rule, std::int64_t n) const;
  // lambda sqrt(d): the factor on scores of unit variance.
  [[nodiscard]] double alpha(const ScaleRule& rule, std::int64_t n) const;
  // Of sampled rows of n normal scores, the same rows for every rule. Nothing for rules sharper
  // than the sample reaches (alpha above 60).
  [[nodiscard]] std::vector<std::optional<theory::GradientSpread>> spreads(std::int64_t n) const;
};

[[nodiscard]] LineChart scale_chart(const Comparison& comparison);
// Of normal scores; rules sharper than these laws reach (alpha above 60) are left out.
[[nodiscard]] LineChart mass_chart(const Comparison& comparison);
[[nodiscard]] LineChart starved_chart(const Comparison& comparison);
// Mean entropy of rows over keys on the sphere.
[[nodiscard]] LineChart entropy_chart(const Comparison& comparison);

// n = 40, 80, ... 20000: the optimum, its fit, and both figures of Su 2023.
[[nodiscard]] LineChart normal_optimum_chart();
[[nodiscard]] LineChart cosine_optimum_chart(std::int64_t dim);
[[nodiscard]] LineChart coefficient_chart();
// Entropy against lambda at one n: the law, its estimates and the mean of rows.
[[nodiscard]] LineChart entropy_law_chart(double n, std::int64_t dim);
// 8 ln n and d log_512 n.
[[nodiscard]] LineChart dimension_chart(double dim);

}  // namespace isentrope::report
