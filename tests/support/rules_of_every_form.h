// Rules for round trips: every rule of the catalogue, and every form of a rule.
#pragma once

#include <vector>

#include "isentrope/scale_rule.h"

namespace isentrope {

inline std::vector<ScaleRule> rules_of_every_form() {
  std::vector<ScaleRule> rules = ScaleRule::all();
  for (const ScaleRule& rule :
       {ScaleRule::entropy_invariant(512, 16), ScaleRule::ssmax({0.1, 0.25, 1e-7}, {-1, 0, 1}),
        ScaleRule::logn(4096).with_length({.source = LengthSource::position, .offset = 0.5}),
        ScaleRule::grad_max_normal().with_length({.source = LengthSource::fixed, .fixed = 1024}),
        ScaleRule::logn(4096).with_place(ScalePlace::post_cap).with_scaled_bias(true),
        ScaleRule::log_length().with_length({.n_min = 4, .n_max = 1000}),
        ScaleRule::llama_4_scaling() * ScaleRule::yarn_mscale(16) * ScaleRule::logn(),
        ScaleRule::table({1, 64, 4096}, {1, 1, 2}), ScaleRule::per_row({0.5, 1, 2, 4}, 2),
        ScaleRule::parse("closed_form(growth=log,unit=64,lo=1)"),
        ScaleRule::parse(
            "closed_form(c=2,growth=sphere_gap,unit=64,gamma=[0.5,1],lo=0,rho=0.5)")}) {
    rules.push_back(rule);
  }
  return rules;
}

}  // namespace isentrope
