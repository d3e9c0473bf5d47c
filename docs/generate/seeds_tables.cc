// Every number printed in the four notes, beside the theory library's; errors of the notes' fits.

#include <fmt/core.h>

#include <cmath>
#include <optional>

#include "docs/generate/tables.h"
#include "isentrope/scale_rule.h"
#include "isentrope/theory/dimension.h"
#include "isentrope/theory/entropy.h"
#include "isentrope/theory/gradient.h"
#include "tools/report/numbers.h"

namespace isentrope::docs {
namespace {

// Meaning of the comparison of the two numbers.
enum class Kind {
  value,         // both are computed independently
  fit,           // a constant fitted to computed values
  formula,       // the note has a formula, a range or a word; the library has its value
  construction,  // true by definition of the quantity
};

const char* name_of(Kind kind) {
  switch (kind) {
    case Kind::value:
      return "value";
    case Kind::fit:
      return "fit";
    case Kind::formula:
      return "formula";
    case Kind::construction:
      break;
  }
  return "by construction";
}

struct Number {
  Kind kind;
  const char* quantity;
  const char* note;               // as printed there
  std::optional<double> printed;  // empty if the note has a formula only
  double ours;
  const char* command;
};

std::string table_of(const std::vector<Number>& numbers) {
  Rows rows = {{"number", "in the note", "ours", "deviation", "kind", "command"}};
  for (const auto& [kind, quantity, note, printed, ours, command] : numbers) {
    rows.push_back({quantity, note, fmt::format("{:.6g}", ours),
                    printed ? report::signed_decimal(100 * (ours / *printed - 1), 2) + " %" : "–",
                    name_of(kind), fmt::format("`isentrope {}`", command)});
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
  return table_of({{Kind::construction, "Var(q.k) / d for unit variances", "1", 1, 1,
                    "theory variance --dim 64"},
                   {Kind::formula,
                    "the scale, 1/sqrt(d), at d = 64",
                    "1/sqrt(d)",
                    {},
                    ScaleRule::standard().lambda({64, 63, 64}, 64),
                    "scale standard --dim 64"}});
}

std::string entropy_note() {
  const double ratio = ScaleRule::log_length().lambda({20, 19, 20}, 64) * 8;
  return table_of({{Kind::formula,
                    "kappa = sqrt(d)/ln 512 at d = 64",
                    "sqrt(d)/ln 512",
                    {},
                    theory::kappa_of_base(512, 64),
                    "theory entropy --dim 64"},
                   {Kind::value, "loss of entropy for each lambda d", "0.24", 0.24,
                    theory::laplace_coefficient(), "theory entropy"},
                   {Kind::value, "lambda d / ln n that cancels it", "1/0.24", 1 / 0.24,
                    1 / theory::laplace_coefficient(), "theory entropy"},
                   {Kind::construction, "log_512 n at n = 512", "1", 1,
                    ScaleRule::entropy_invariant(512).lambda({512, 511, 512}, 64) * 8,
                    "scale 'entropy_invariant(base=512)' --lengths 512"},
                   {Kind::formula,
                    "ln n at n = 20, over the standard scale",
                    "unproblematic",
                    {},
                    ratio,
                    "scale log_length --lengths 20"}});
}

std::string dimension_note() {
  return table_of({{Kind::value, "8 ln n at n = 100000", "92", 92, theory::jl_dimension(100000),
                    "theory dimension --lengths 100000"},
                   {Kind::value, "8 ln 512", "50", 50, theory::jl_dimension(512),
                    "theory dimension --lengths 512"},
                   {Kind::formula,
                    "lambda = d/ln 512 at d = 64",
                    "d/ln 512",
                    {},
                    theory::matched_factor(64),
                    "theory dimension --dim 64"},
                   {Kind::construction, "d_n at n = 512 for d = 64", "64", 64,
                    theory::matched_dimension(512, 64), "theory dimension --dim 64 --lengths 512"},
                   {Kind::value, "n > 8.33 log N: 2/0.24", "8.33", 8.33,
                    theory::pair_dimension_factor(), "theory dimension"}});
}

std::string gradient_note() {
  return table_of({{Kind::fit, "c of alpha* = c sqrt(ln n), normal scores, n = 40 ... 20000",
                    "0.84", 0.84, fitted(false), "theory gradient --scores normal"},
                   {Kind::formula,
                    "keys at which alpha* reaches 2",
                    "2 ~ 3",
                    {},
                    theory::normal_optimum_length(2),
                    "theory gradient --between 2,3"},
                   {Kind::formula,
                    "keys at which alpha* reaches 3",
                    "2 ~ 3",
                    {},
                    theory::normal_optimum_length(3),
                    "theory gradient --between 2,3"},
                   {Kind::formula,
                    "keys at which the compromise 2.5 is the optimum",
                    "2.5",
                    {},
                    theory::normal_optimum_length(2.5),
                    "theory gradient --between 2.5,2.5"},
                   {Kind::fit, "c of alpha* = c ln n, cosine scores, d = 128", "3.5", 3.5,
                    fitted(true), "theory gradient --scores cosine --dim 128"},
                   {Kind::formula,
                    "keys at which alpha* reaches 25, d = 128",
                    "25 ~ 35",
                    {},
                    theory::cosine_optimum_length(25, 128),
                    "theory gradient --scores cosine --between 25,35"},
                   {Kind::formula,
                    "keys at which alpha* reaches 35, d = 128",
                    "25 ~ 35",
                    {},
                    theory::cosine_optimum_length(35, 128),
                    "theory gradient --scores cosine --between 25,35"},
                   {Kind::formula,
                    "keys at which 30 is the optimum, d = 128",
                    "about 30",
                    {},
                    theory::cosine_optimum_length(30, 128),
                    "theory gradient --scores cosine --between 30,30"},
                   {Kind::formula,
                    "alpha* at n = L_max/2 for L_max = 1024, normal scores",
                    "L_max/2",
                    {},
                    theory::normal_optimum(512),
                    "theory gradient --lengths 512"}});
}

std::string fits_table() {
  Rows rows = {{"n", "alpha*, normal", "0.84 sqrt(ln n)", "misses by", "alpha*, cosine, d = 128",
                "3.5 ln n", "misses by"}};
  for (const double n : {40, 100, 500, 1000, 5000, 10000, 20000}) {
    const double normal = theory::normal_optimum(n), normal_fit = 0.84 * std::sqrt(std::log(n));
    const double cosine = theory::cosine_optimum(n, 128), cosine_fit = 3.5 * std::log(n);
    rows.push_back({report::compact(n), report::decimal(normal, 3), report::decimal(normal_fit, 3),
                    report::signed_decimal(normal_fit - normal, 3), report::decimal(cosine, 2),
                    report::decimal(cosine_fit, 2),
                    report::signed_decimal(cosine_fit - cosine, 2)});
  }
  return markdown_table(rows);
}

}  // namespace

std::map<std::string, std::string> seeds_tables(const std::filesystem::path& docs) {
  return {{"variance", variance_note()},   {"entropy", entropy_note()},
          {"dimension", dimension_note()}, {"gradient", gradient_note()},
          {"fits", fits_table()},          {"line", line_table(docs)}};
}

}  // namespace isentrope::docs
