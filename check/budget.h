// The error budget that separates right from wrong (docs/contributors/numerics.md).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "check/run.h"

namespace isentrope::check {

// The largest error over budget of any result: at most 1 when right. Where the reference is not
// finite, a result must not be finite either; where it is, a result that is not counts as
// infinitely wrong.
struct Ratio {
  double worst = 0;
  std::string where;
  std::map<std::string, double> of_result{};  // "output", "lse", "dq", ...: the largest of each
};

// How the results were computed, as far as it decides what may be wrong.
struct Arithmetic {
  // Products of f16 take weights rounded to f16, or the gradients of logits, as tensor cores do
  // both. Of ours AMX-FP16 takes weights so.
  bool rounds_f16_weights = false, rounds_f16_gradients = false;
  // Products of equal keys may differ with their places in a tile, so that any of several largest
  // keys may be taken for the first; ours do not.
  bool tells_equal_keys_apart = false;
  // What keys and values in 8 bits are off by: the logits of each row, and each component of the
  // output. Empty: nothing.
  std::vector<double> logits{}, values{};
};

// Adds what the problem's cache in 8 bits is off by.
void add_cache_errors(const Data& data, const reference::Result& want, Arithmetic& to);

// Of the results of a problem whose reference is there already.
[[nodiscard]] Ratio forward_error_over_budget(const Problem& problem, const reference::Result& want,
                                              const ForwardResult& got,
                                              const Arithmetic& arithmetic = {});
[[nodiscard]] Ratio backward_error_over_budget(const Problem& problem,
                                               const reference::Result& forward,
                                               const reference::Gradients& want,
                                               const BackwardResult& got,
                                               const Arithmetic& arithmetic = {});

}  // namespace isentrope::check
