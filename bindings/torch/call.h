// CallArguments: the operators' common arguments, read from the stack and converted for the core.
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

  // Returns views of the tensors. Throws Error for a wrong type or rank.
  [[nodiscard]] AttentionInput input() const;
  [[nodiscard]] reference::Input input_in_float64() const;
  // Returns the options. If q is float64, arrays of numbers have only a shape here, and
  // input_in_float64() has their contents.
  [[nodiscard]] AttentionOptions options() const;

  const TorchTensor q, k, v;

 private:
  using Value = std::variant<TorchTensor, TorchText, std::int64_t, double>;

  // A fixed array, because reading arguments may not allocate.
  std::array<Value, 32> values_;
  // Tensors that a compiler must not treat as constants: they replace a rule's base and soft_cap.
  OptionalTensor compiled_scale_, compiled_soft_cap_;
};

// Returns views of q, k and v.
[[nodiscard]] AttentionInput input_of(const TorchTensor& q, const TorchTensor& k,
                                      const TorchTensor& v);

// Converts the schema's number.
[[nodiscard]] Causal causal_of(std::int64_t number);

// Renames lambda, which is a keyword in Python.
[[nodiscard]] inline std::string name_in_python(std::string_view name) {
  return name == "lambda" ? "lambda_" : std::string(name);
}

// Returns the same arguments as a schema lists them: "Tensor q, ..., float soft_cap".
[[nodiscard]] std::string call_schema();

// Returns the same arguments besides q, k and v: [{"name": ..., "default": ..., "axes": ["batch",
// ...], "mask": whether it is a part of the mask}, ...].
[[nodiscard]] std::string call_arguments();

// Parses a rule. Models use one rule repeatedly, so each thread caches the last one.
[[nodiscard]] const ScaleRule& parsed_rule(std::string_view text);

}  // namespace isentrope::stable
