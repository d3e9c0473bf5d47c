// Every number that the four notes print, beside what the theory library makes of it.

#include <fmt/core.h>

#include <cmath>
#include <optional>

#include "docs/generate/tables.h"
#include "isentrope/scale_rule.h"
#include "isentrope/theory/dimension.h"
#include "isentrope/theory/entropy.h"
#include "isentrope/theory/gradient.h"
#include "report/numbers.h"

namespace isentrope::docs {
namespace {

struct Number {
  const char* quantity;
  const char* note;               // as it is printed there
  std::optional<double> printed;  // nothing where the note has a formula only
  double ours;
  const char* command;
};

std::string table_of(const std::vector<Number>& numbers) {
  Rows rows = {{"number", "in the note", "ours", "deviation", "command"}};
  for (const auto& [quantity, note, printed, ours, command] : numbers) {
    rows.push_back({quantity, note, fmt::format("{:.6g}", ours),
                    printed ? report::signed_decimal(100 * (ours / *printed - 1), 2) + " %" : "–",
                    fmt::format("`isentrope {}`", command)});
  }
  return markdown_table(rows);
}

double fitted(bool cosine) {
  std::vector<double> n, alpha;
  for (double value = 40; value <= 20000; value += 40) {
    n.push_back(value);
    alpha.push_back(cosine ? theory::cosine_optimum(value, 128) : theory::normal_optimum(value));
  }
  return (cosine ? theory::fit_log(n, alpha) : theory::fit_sqrt_log(n, alpha)).c;
}

std::string variance_note() {
  return table_of({{"Var(q.k) / d for unit variances", "1", 1, 1, "theory variance --dim 64"},
                   {"the scale, 1/sqrt(d), at d = 64",
                    "1/sqrt(d)",
                    {},
                    ScaleRule::standard().lambda({64, 63, 64}, 64),
                    "scale standard --dim 64"}});
}

std::string entropy_note() {
  const double ratio = ScaleRule::log_length().lambda({20, 19, 20}, 64) * 8;
  return table_of({{"kappa = sqrt(d)/ln 512 at d = 64",
                    "sqrt(d)/ln 512",
                    {},
                    theory::kappa_of_base(512, 64),
                    "theory entropy --dim 64"},
                   {"loss of entropy for each lambda d", "0.24", 0.24,
                    theory::laplace_coefficient(), "theory entropy"},
                   {"lambda d / ln n that cancels it", "1/0.24", 1 / 0.24,
                    1 / theory::laplace_coefficient(), "theory entropy"},
                   {"log_512 n at n = 512", "1", 1,
                    ScaleRule::entropy_invariant(512).lambda({512, 511, 512}, 64) * 8,
                    "scale 'entropy_invariant(base=512)' --lengths 512"},
                   {"ln n at n = 20, over the standard scale",
                    "unproblematic",
                    {},
                    ratio,
                    "scale log_length --lengths 20"}});
}

std::string dimension_note() {
  return table_of(
      {{"8 ln n at n = 100000", "92", 92, theory::jl_dimension(100000),
        "theory dimension --lengths 100000"},
       {"8 ln 512", "50", 50, theory::jl_dimension(512), "theory dimension --lengths 512"},
       {"lambda = d/ln 512 at d = 64",
        "d/ln 512",
        {},
        theory::matched_factor(64),
        "theory dimension --dim 64"},
       {"d_n at n = 512 for d = 64", "64", 64, theory::matched_dimension(512, 64),
        "theory dimension --dim 64 --lengths 512"},
       {"n > 8.33 log N: 2/0.24", "8.33", 8.33, theory::pair_dimension_factor(),
        "theory dimension"}});
}

std::string gradient_note() {
  return table_of({{"c of alpha* = c sqrt(ln n), normal scores, n = 40 ... 20000", "0.84", 0.84,
                    fitted(false), "theory gradient --scores normal"},
                   {"keys at which alpha* reaches 2",
                    "2 ~ 3",
                    {},
                    theory::normal_optimum_length(2),
                    "theory gradient --between 2,3"},
                   {"keys at which alpha* reaches 3",
                    "2 ~ 3",
                    {},
                    theory::normal_optimum_length(3),
                    "theory gradient --between 2,3"},
                   {"keys at which the compromise 2.5 is the optimum",
                    "2.5",
                    {},
                    theory::normal_optimum_length(2.5),
                    "theory gradient --between 2.5,2.5"},
                   {"c of alpha* = c ln n, cosine scores, d = 128", "3.5", 3.5, fitted(true),
                    "theory gradient --scores cosine --dim 128"},
                   {"keys at which alpha* reaches 25, d = 128",
                    "25 ~ 35",
                    {},
                    theory::cosine_optimum_length(25, 128),
                    "theory gradient --scores cosine --between 25,35"},
                   {"keys at which alpha* reaches 35, d = 128",
                    "25 ~ 35",
                    {},
                    theory::cosine_optimum_length(35, 128),
                    "theory gradient --scores cosine --between 25,35"},
                   {"keys at which 30 is the optimum, d = 128",
                    "about 30",
                    {},
                    theory::cosine_optimum_length(30, 128),
                    "theory gradient --scores cosine --between 30,30"},
                   {"alpha* at n = L_max/2 for L_max = 1024, normal scores",
                    "L_max/2",
                    {},
                    theory::normal_optimum(512),
                    "theory gradient --lengths 512"}});
}

}  // namespace

std::map<std::string, std::string> seeds_tables() {
  return {{"variance", variance_note()},
          {"entropy", entropy_note()},
          {"dimension", dimension_note()},
          {"gradient", gradient_note()}};
}

}  // namespace isentrope::docs
