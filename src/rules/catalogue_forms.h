// Closed forms: arithmetic from a rule's parameters (listed in catalogue.cc) to its form's members.
#pragma once

#include <algorithm>
#include <limits>
#include <numbers>
#include <numeric>
#include <span>
#include <utility>

#include "isentrope/scale_form.h"
#include "src/rules/cosine_optimum.h"
#include "src/rules/domain.h"

namespace isentrope {

using Arguments = std::span<const PerHead>;

inline double scalar(Arguments arguments, std::size_t i) { return arguments[i].front(); }

inline ClosedForm growing(Growth growth, double unit, PerHead a, PerHead b) {
  ClosedForm form;
  form.growth = growth;
  form.unit = unit;
  form.a = std::move(a);
  form.b = std::move(b);
  return form;
}

inline LengthPolicy measured(LengthSource source, double offset = 0) {
  LengthPolicy policy;
  policy.source = source;
  policy.offset = offset;
  return policy;
}

inline LengthPolicy fixed_at(double n) {
  LengthPolicy policy;
  policy.source = LengthSource::fixed;
  policy.fixed = n;
  return policy;
}

inline ClosedForm constant_form(PerHead c, double p) {
  ClosedForm form;
  form.c = std::move(c);
  form.p = p;
  return form;
}

inline ClosedForm cosine_form(Arguments x) {
  PerHead tau = x[0];
  for (double& value : tau) value = std::min(value, scalar(x, 1));
  return constant_form(std::move(tau), 0);
}

inline ClosedForm asentmax_form(Arguments x) {
  ClosedForm form = growing(Growth::log, std::numbers::e, x[0], x[1]);
  form.gamma = x[2];
  form.length = measured(LengthSource::visible, 1);
  return form;
}

inline ClosedForm log_form(double base, LengthSource source, double lo) {
  ClosedForm form = growing(Growth::log, base, {0}, {1});
  form.length = measured(source);
  form.lo = lo;
  return form;
}

inline ClosedForm floor_form(double floor_scale, double slope, double offset) {
  ClosedForm form = growing(Growth::log_floor, floor_scale, {1}, {slope});
  form.length = measured(LengthSource::position, offset);
  return form;
}

inline ClosedForm ratio_form(double unit, double slope, const LengthPolicy& policy) {
  ClosedForm form = growing(Growth::log_ratio, unit, {1}, {slope});
  form.length = policy;
  return form;
}

inline ClosedForm yarn_form(double unit, double mscale, const LengthPolicy& policy) {
  ClosedForm form = ratio_form(unit, 0.1 * mscale, policy);
  form.rho = 2;
  return form;
}

inline ClosedForm inkling_form(Arguments x) {
  ClosedForm form = ratio_form(scalar(x, 0), scalar(x, 1), {});
  form.p = -1;
  form.scale_bias = true;
  return form;
}

inline ClosedForm grok_form(Arguments x) {
  ClosedForm form = log_form(scalar(x, 0), LengthSource::position, 1);
  form.place = ScalePlace::post_cap;
  return form;
}

inline ClosedForm longrope_form(Arguments x) {
  ClosedForm form = log_form(scalar(x, 0), LengthSource::fixed, 1);
  form.length = fixed_at(scalar(x, 1));
  return form;
}

inline ClosedForm root_form(Growth growth, double unit, double slope, LengthSource source) {
  ClosedForm form = growing(growth, unit, {0}, {slope});
  form.gamma = {0.5};
  form.length = measured(source);
  return form;
}

inline ClosedForm grad_max_cosine_form(Arguments x) {
  ClosedForm form = growing(Growth::log, std::numbers::e, {0}, {cosine_coefficient(scalar(x, 0))});
  form.p = 0;
  return form;
}

inline ClosedForm table_form(Arguments x) {
  check_table(x[0], x[1]);
  ClosedForm form = growing(Growth::table, 1, {0}, {1});
  form.nodes = {x[0], x[1]};
  return form;
}

inline ClosedForm per_row_form(Arguments x) {
  check_rows(x[0], scalar(x, 1));
  ClosedForm form = growing(Growth::table, 1, {0}, {1});
  form.p = 0;
  form.nodes.factor = x[0];
  const auto rows = x[0].size() / static_cast<std::size_t>(scalar(x, 1));
  form.nodes.n.resize(rows);
  std::iota(form.nodes.n.begin(), form.nodes.n.end(), 1.0);
  form.length = measured(LengthSource::position, 1);
  return form;
}

inline ClosedForm closed_form(Arguments x) {
  ClosedForm form = growing(static_cast<Growth>(scalar(x, 4)), scalar(x, 5), x[2], x[3]);
  form.c = x[0];
  form.p = scalar(x, 1);
  form.gamma = x[6];
  form.lo = scalar(x, 7);
  form.hi = scalar(x, 8);
  form.rho = scalar(x, 9);
  check_closed_form(form);
  return form;
}

}  // namespace isentrope
