// Calls of the forward pass that must be refused by name, before anything is written.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "isentrope/attention.h"
#include "tests/support/message_of.h"
#include "tools/check/data.h"

namespace isentrope::check {

struct Refusal {
  std::string message;  // after "[attention] "
  std::function<void(AttentionInput& in, AttentionOptions& options)> change;
};

// Expects the problem's call to be refused after each change.
inline void expect_refusals(const std::string& line, const std::vector<Refusal>& refusals) {
  const Data data(parse_problem(line));
  const Problem& p = data.problem;
  const std::array shape = {p.batch, p.heads, p.queries, p.value_dim};
  const std::vector<float> untouched(
      static_cast<std::size_t>(p.batch * p.heads * p.queries * p.value_dim), 7);
  std::vector<float> output = untouched;
  for (const auto& [message, change] : refusals) {
    AttentionInput in = data.input();
    AttentionOptions options = data.options();
    change(in, options);
    EXPECT_EQ(message_of([&] {
                attention_forward(in, options, {contiguous_view<float, 4>(output.data(), shape)});
              }),
              "[attention] " + message);
  }
  EXPECT_EQ(output, untouched);
}

}  // namespace isentrope::check
