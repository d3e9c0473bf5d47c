// CallArguments: the arguments that the operators share, from the stack to what the core takes.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "bindings/torch/values.h"
#include "isentrope/attention.h"
#include "isentrope/reference.h"

namespace isentrope::stable {

// q, k, v and the arguments of src/call/arguments.h, in that order. Owns its tensors.
class CallArguments {
 public:
  explicit CallArguments(Arguments& from);

  // Views of the tensors; they throw Error when a type or a rank is wrong.
  [[nodiscard]] AttentionInput input() const;
  [[nodiscard]] reference::Input input_in_float64() const;
  // Where q is float64, arrays of numbers have a shape alone here: input_in_float64() has what they
  // hold.
  [[nodiscard]] AttentionOptions options() const;

  const TorchTensor q, k, v;

 private:
  using Value = std::variant<TorchTensor, TorchText, std::int64_t, double>;

  // With room to spare, for no memory may be asked for while arguments are read.
  std::array<Value, 32> values_;
  // Numbers that a compiler must not take for constants; they take the place of a rule's base and
  // of soft_cap.
  TorchTensor compiled_scale_, compiled_soft_cap_;
};

// By its number in the schema.
[[nodiscard]] Causal causal_of(std::int64_t number);

// Python keeps the word lambda for itself.
[[nodiscard]] inline std::string name_in_python(std::string_view name) {
  return name == "lambda" ? "lambda_" : std::string(name);
}

// The same arguments as a schema lists them: "Tensor q, ..., float soft_cap".
[[nodiscard]] std::string call_schema();

// The rule of a text. Models name one rule over and over, so the last one of each thread is kept.
[[nodiscard]] const ScaleRule& parsed_rule(std::string_view text);

}  // namespace isentrope::stable
