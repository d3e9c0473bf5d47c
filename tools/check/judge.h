// Compares results of this CPU with budgets: one reference a problem, a verdict for each target.
#pragma once

#include <optional>
#include <string>

#include "tools/check/budget.h"

namespace isentrope::check {

// Returns the arithmetic of this CPU's products, and of the problem's 8-bit cache, if any.
[[nodiscard]] Arithmetic arithmetic_of(const Data& data, const reference::Result& want);

[[nodiscard]] Ratio forward_error_over_budget(const Data& data, const ForwardResult& result);
[[nodiscard]] Ratio backward_error_over_budget(const Data& data,
                                               const reference::GradientInput& gradient,
                                               const BackwardResult& result);

enum class Outcome { passed, failed, mistrusted, skipped };
[[nodiscard]] const char* name_of(Outcome outcome);

struct Verdict {
  Outcome outcome = Outcome::passed;
  Ratio forward{}, backward{}, tangent{}, second_order{};
  std::string reason{};  // if neither passed nor failed

  // Returns the largest of all.
  [[nodiscard]] const Ratio& worst() const {
    const Ratio* worst = &forward;
    for (const Ratio* ratio : {&backward, &tangent, &second_order})
      if (ratio->worst > worst->worst) worst = ratio;
    return *worst;
  }
};

class Judge {
 public:
  // Throws Error if the operator rejects the problem.
  explicit Judge(const Problem& problem);

  // Runs the problem on the active target, which no other thread may change meanwhile.
  [[nodiscard]] Verdict judge() const;

  // Compares results of the forward and the backward pass, `backward` if the problem has one: of
  // this CPU, or external ones of another arithmetic.
  [[nodiscard]] Verdict judge(const ForwardResult& forward, const BackwardResult* backward) const {
    return judge(forward, backward, arithmetic_of(data_, forward_));
  }
  [[nodiscard]] Verdict judge(const ForwardResult& forward, const BackwardResult* backward,
                              const Arithmetic& arithmetic) const;

  [[nodiscard]] const Data& data() const { return data_; }
  // Returns the upstream gradient; null without a backward pass.
  [[nodiscard]] const reference::GradientInput* upstream() const {
    return upstream_ ? &*upstream_ : nullptr;
  }

 private:
  Data data_;
  reference::Result forward_;
  KeyStatisticsReference keys_;
  std::optional<reference::GradientInput> upstream_;
  std::optional<reference::Gradients> backward_;
  // Given for a problem with the second-order pass.
  std::optional<Tensors> tangents_;
  std::optional<reference::Tangents> tangent_;
  std::optional<reference::Gradients> second_order_;
};

}  // namespace isentrope::check
