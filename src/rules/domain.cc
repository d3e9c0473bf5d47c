#include "src/rules/domain.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "isentrope/error.h"
#include "src/rules/number_text.h"

namespace isentrope {

void reject(const std::string& required, const std::string& got) {
  throw Error("[scale_rule] " + required + "; got " + got);
}

namespace {

bool contains(double value, double low, double high, bool open) {
  return (open ? value > low : value >= low) && value <= high;
}

// Returns "scale must be in [0, 1e+09]".
std::string domain_of(std::string_view name, double low, double high, bool open) {
  const std::string from =
      std::string(name) + " must be " + (open ? "above " : "at least ") + number_text(low);
  return std::isinf(high) ? from : from + " and at most " + number_text(high);
}

}  // namespace

void require(std::string_view name, double value, double low, double high, bool open) {
  if (!contains(value, low, high, open)) {
    reject(domain_of(name, low, high, open), std::string(name) + " = " + number_text(value));
  }
}

void check_argument(const RuleParameter& parameter, const PerHead& values) {
  const bool many = parameter.kind == ParameterKind::per_head ||
                    parameter.kind == ParameterKind::list || parameter.kind == ParameterKind::lists;
  if (!many && values.size() != 1) {
    reject(std::string(parameter.name) + " must be one number",
           std::to_string(values.size()) + " numbers");
  }
  for (const double value : values) {
    require(parameter.name, value, parameter.low, parameter.high, parameter.open);
  }
  if (parameter.kind == ParameterKind::growth && values[0] != std::floor(values[0])) {
    reject("growth must be whole", number_text(values[0]));
  }
}

void check_heads(const ClosedForm& form) {
  const auto heads = static_cast<std::size_t>(heads_of(form));
  for (const PerHead* values : {&form.c, &form.a, &form.b, &form.gamma}) {
    if (values->size() != 1 && values->size() != heads) {
      reject("per-head arguments must have one length",
             std::to_string(values->size()) + " and " + std::to_string(heads) + " numbers");
    }
  }
}

void check_table(const PerHead& n, const PerHead& factor) {
  if (std::ranges::adjacent_find(n, std::greater_equal{}) != n.end()) {
    reject("n must increase strictly", "a table whose n does not");
  }
  if (factor.size() % n.size() != 0) {
    reject("factor must have as many numbers as n, or as many for each head",
           std::to_string(factor.size()) + " for " + std::to_string(n.size()));
  }
}

void check_rows(const PerHead& lambda, double heads) {
  if (heads != std::floor(heads) || lambda.size() % static_cast<std::size_t>(heads) != 0) {
    reject("heads must divide the count of lambda",
           std::to_string(lambda.size()) + " lambda and heads = " + number_text(heads));
  }
}

void check_closed_form(const ClosedForm& form) {
  const bool logarithm = form.growth == Growth::log || form.growth == Growth::sphere_gap;
  if (logarithm) require("unit", form.unit, 1, 1e18, true);
  if (form.growth == Growth::log_floor || form.growth == Growth::log_ratio) {
    require("unit", form.unit, 0, 1e18, true);
  }
  if (form.growth == Growth::power) require("unit", form.unit, -2, 2);
  if (!(form.lo <= form.hi)) {
    reject("lo must be at most hi", number_text(form.lo) + " and " + number_text(form.hi));
  }
  if (form.rho != std::floor(form.rho) && !(form.lo >= 0)) {
    reject("lo must be at least 0 when rho is not whole", "lo = " + number_text(form.lo));
  }
}

void check_length(const LengthPolicy& policy) {
  require("n_min", policy.n_min, 1, 1e18);
  require("n_max", policy.n_max, policy.n_min, std::numeric_limits<double>::infinity());
  require("offset", policy.offset, -1e18, 1e18);
  require("length", policy.fixed, 0, 1e18);
}

}  // namespace isentrope
