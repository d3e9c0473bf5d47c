// Error budget that separates right from wrong (docs/contributors/numerics.md).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tools/check/run.h"

namespace isentrope::check {

// Largest error over budget of any result: at most 1 if correct. A result must be non-finite
// exactly where the reference is; otherwise its error is infinite.
struct Ratio {
  double worst = 0;
  std::string where;
  std::map<std::string, double> of_result{};  // largest of each: "output", "lse", "dq", ...
};

// Properties of the arithmetic that change the budget.
struct Arithmetic {
  // Whether products of f16 round weights, or gradients of logits, to f16. Tensor cores round both;
  // the CPU's AMX-FP16 rounds weights.
  bool rounds_f16_weights = false, rounds_f16_gradients = false;
  // Whether products round an f32 q to the bf16 of the keys: the CPU's bf16 products do.
  bool rounds_queries = false;
  // Whether products of equal keys may depend on the tile: any largest may be first. CPU: false.
  bool separates_equal_keys = false;
  // Errors of an 8-bit cache: of each row's logits, and of each output component. Empty: none.
  std::vector<double> logits{}, values{};
};

// Adds the errors of the problem's 8-bit cache.
void add_cache_errors(const Data& data, const reference::Result& want, Arithmetic& to);

[[nodiscard]] Ratio forward_error_over_budget(const Problem& problem, const reference::Result& want,
                                              const ForwardResult& got,
                                              const Arithmetic& arithmetic);
// Statistics of keys in float64, and the error that each number may have.
struct KeyStatisticsReference {
  struct Numbers {
    std::vector<double> values, budgets;
  };
  Numbers received, received_of_all, chosen;
};
[[nodiscard]] KeyStatisticsReference reference_key_statistics(const Data& data,
                                                              const reference::Result& forward,
                                                              const Arithmetic& arithmetic);
// Adds statistics of keys to a ratio; those of other implementations may be missing.
void add_key_statistics_error(const KeyStatisticsReference& want, const ForwardResult& got,
                              Ratio& to);

[[nodiscard]] Ratio backward_error_over_budget(const Problem& problem,
                                               const reference::Result& forward,
                                               const reference::Gradients& want,
                                               const BackwardResult& got,
                                               const Arithmetic& arithmetic);

[[nodiscard]] Ratio second_order_error_over_budget(
    const Problem& problem, const reference::Result& forward, const TangentResult& tangents,
    const reference::Gradients& want, const BackwardResult& got, const Arithmetic& arithmetic);
[[nodiscard]] Ratio tangent_error_over_budget(const Problem& problem,
                                              const reference::Result& forward,
                                              const reference::Tangents& want,
                                              const TangentResult& got,
                                              const Arithmetic& arithmetic);

}  // namespace isentrope::check
