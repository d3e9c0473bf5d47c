#include <fmt/core.h>

#include <cmath>

#include "docs/generate/tables.h"
#include "isentrope/error.h"
#include "isentrope/scale_rule.h"
#include "isentrope/theory/dimension.h"
#include "isentrope/theory/entropy.h"
#include "isentrope/theory/gradient.h"
#include "isentrope/theory/row_expectation.h"
#include "isentrope/theory/sampled_gradient.h"

namespace isentrope::docs {
namespace {

std::string laplace_table() {
  Rows rows = {{"lambda"}, {"k(lambda)"}};
  for (const double lambda : {0.01, 0.125, 0.5, 0.88, 1.0, 1.3, 2.0, 4.0}) {
    rows[0].push_back(fmt::format("{}", lambda));
    rows[1].push_back(fmt::format("{:.4f}", theory::laplace_coefficient(lambda)));
  }
  return markdown_table(rows);
}

std::string starred(double value, bool inside) {
  return fmt::format("{:.4f}{}", value, inside ? "" : "*");
}

std::string entropy_table() {
  Rows rows = {{"n", "lambda", "H", "correction of order 1/n", "Laplace at lambda",
                "ln n - 0.2406 lambda d", "mean of rows", "ln n"}};
  for (const double n : {64.0, 512.0, 4096.0}) {
    for (const double lambda : {0.125, 0.25, 1.0}) {
      const theory::SphereEntropy law = theory::sphere_entropy(n, 64, lambda);
      const bool saddle_inside = law.saddle >= 0;
      rows.push_back({fmt::format("{}", n), fmt::format("{}", lambda),
                      starred(law.entropy, law.in_range), fmt::format("{:.2g}", law.correction),
                      starred(law.saddle, saddle_inside),
                      starred(law.laplace, law.laplace_in_range),
                      fmt::format("{:.4f}", theory::sphere_row(n, 64, lambda).entropy),
                      fmt::format("{:.4f}", std::log(n))});
    }
  }
  return markdown_table(rows);
}

std::string base_table() {
  Rows rows = {{"lengths", "d", "base", "kappa", "entropy"}};
  for (const std::int64_t dim : {64, 128}) {
    for (const auto& [from, to] :
         {std::pair{64., 1024.}, std::pair{512., 4096.}, std::pair{512., 131072.}}) {
      const theory::EntropyBase held = theory::entropy_base(from, to, dim);
      rows.push_back({fmt::format("{} and {}", from, to), std::to_string(dim),
                      fmt::format("{:.3f}", held.base), fmt::format("{:.3f}", held.kappa),
                      fmt::format("{:.3f}", held.entropy)});
    }
  }
  return markdown_table(rows);
}

std::string dimension_table() {
  Rows rows = {{"n", "8 ln n", "64 log_512 n"}};
  for (const double n : {64.0, 512.0, 4096.0, 32768.0, 100000.0, 1048576.0}) {
    rows.push_back({fmt::format("{}", n), fmt::format("{:.2f}", theory::jl_dimension(n)),
                    fmt::format("{:.2f}", theory::matched_dimension(n, 64))});
  }
  return markdown_table(rows);
}

std::string fit_table() {
  std::vector<double> n, normal;
  for (double value = 40; value <= 20000; value += 40) {
    n.push_back(value);
    normal.push_back(theory::normal_optimum(value));
  }
  Rows rows = {{"scores", "fit", "rms residual", "alpha* at n = 512", "alpha* at n = 20000"}};
  const theory::Fit root = theory::fit_sqrt_log(n, normal);
  rows.push_back({"normal", fmt::format("{:.4f} sqrt(ln n)", root.c),
                  fmt::format("{:.3f}", root.rms_residual),
                  fmt::format("{:.4f}", theory::normal_optimum(512)),
                  fmt::format("{:.4f}", theory::normal_optimum(20000))});
  for (const std::int64_t dim : {16, 32, 64, 128, 256, 512, 1024, 4096}) {
    std::vector<double> alpha;
    for (const double value : n) alpha.push_back(theory::cosine_optimum(value, dim));
    const theory::Fit fit = theory::fit_log(n, alpha);
    rows.push_back({fmt::format("cosine, d = {}", dim), fmt::format("{:.4f} ln n", fit.c),
                    fmt::format("{:.3f}", fit.rms_residual),
                    fmt::format("{:.3f}", theory::cosine_optimum(512, dim)),
                    fmt::format("{:.3f}", theory::cosine_optimum(20000, dim))});
  }
  return markdown_table(rows);
}

std::string starved_table() {
  const std::vector<double> lengths = {20, 64, 512, 4096, 65536, 1048576};
  Rows rows = {{"rule"}};
  for (const double n : lengths) rows.front().push_back(fmt::format("n = {}", n));
  for (const ScaleRule& rule :
       {ScaleRule::standard(), ScaleRule::entropy_invariant(), ScaleRule::scaled({2.5}),
        ScaleRule::grad_max_normal(), ScaleRule::ssmax(), ScaleRule::log_length()}) {
    rows.push_back({"`" + rule.text() + "`"});
    for (const double n : lengths) {
      const auto length = static_cast<std::int64_t>(n);
      const double alpha = rule.lambda({length, length - 1, length}, 64) * 8;
      const auto spread = theory::sampled_gradient(n, std::vector{alpha}, 2000).front();
      rows.back().push_back(fmt::format("{:.1f} %, mass {:.2f}", 100 * spread.starved,
                                        theory::rule_gradient_mass(rule, length, 64)));
    }
  }
  return markdown_table(rows);
}

}  // namespace

std::map<std::string, std::string> theory_tables() {
  return {{"laplace", laplace_table()}, {"entropy", entropy_table()},
          {"bases", base_table()},      {"dimension", dimension_table()},
          {"fits", fit_table()},        {"starved", starved_table()}};
}

}  // namespace isentrope::docs
