// Results of this CPU against their budgets; Judge: one problem, its reference computed once, and a
// verdict for each instruction set.
#pragma once

#include <optional>
#include <string>

#include "check/budget.h"

namespace isentrope::check {

[[nodiscard]] Ratio forward_error_over_budget(const Data& data, const ForwardResult& result);
[[nodiscard]] Ratio backward_error_over_budget(const Data& data,
                                               const reference::GradientInput& gradient,
                                               const BackwardResult& result);

enum class Outcome { passed, failed, mistrusted, skipped };
[[nodiscard]] const char* name_of(Outcome outcome);

struct Verdict {
  Outcome outcome = Outcome::passed;
  Ratio forward{}, backward{};
  std::string reason{};  // of a verdict that is neither passed nor failed

  // The worse of the two.
  [[nodiscard]] const Ratio& worst() const {
    return backward.worst > forward.worst ? backward : forward;
  }
};

class Judge {
 public:
  // Throws Error when the operator rejects the problem, as it would a caller's.
  explicit Judge(const Problem& problem);

  // Runs the problem on the active target. Not while another thread changes that.
  [[nodiscard]] Verdict judge() const;

  // Of results that were computed elsewhere; `backward` where the problem has a backward pass.
  [[nodiscard]] Verdict judge(const ForwardResult& forward, const BackwardResult* backward,
                              const Arithmetic& arithmetic = {}) const;

  [[nodiscard]] const Data& data() const { return data_; }
  // Of the backward pass, null without one.
  [[nodiscard]] const reference::GradientInput* upstream() const {
    return upstream_ ? &*upstream_ : nullptr;
  }

 private:
  Data data_;
  reference::Result forward_;
  std::optional<reference::GradientInput> upstream_;
  std::optional<reference::Gradients> backward_;
};

}  // namespace isentrope::check
