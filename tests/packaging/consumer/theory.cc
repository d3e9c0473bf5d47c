// Uses the theory: a function of every header.

#include <cstdio>
#include <vector>

#include "isentrope/theory/dimension.h"
#include "isentrope/theory/entropy.h"
#include "isentrope/theory/gradient.h"
#include "isentrope/theory/row_expectation.h"
#include "isentrope/theory/sampled_gradient.h"
#include "isentrope/theory/variance.h"

int main() {
  using namespace isentrope::theory;
  const std::vector<double> rows = {1, -1, 1, -1, 1, -1}, alphas = {1};
  const double entropy = sphere_entropy(512, 64, 0.125).entropy;
  const double averaged = sphere_row(512, 64, 0.125).entropy;
  std::printf(
      "entropy %.4f, averaged over rows %.4f; JL dimension %.1f; optimum %.3f, median mass %.3f, "
      "variance %.1f\n",
      entropy, averaged, jl_dimension(512), normal_optimum(512),
      sampled_gradient(512, alphas, 10).front().median,
      check_score_variance(rows, rows, 2).score_variance);
  return entropy > averaged - 0.1 && entropy < averaged + 0.1 ? 0 : 1;
}
