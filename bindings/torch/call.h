// CallArguments: what the operators share, as their schema lists it, and as the core wants it.
#pragma once

#include <cstdint>
#include <string>

#include "bindings/torch/values.h"
#include "isentrope/attention.h"

namespace isentrope::stable {

// In the order of the schema; kCallSchema is its text.
struct CallArguments {
  explicit CallArguments(Arguments& from);

  // Views of these tensors; they throw Error when a type or a rank is wrong.
  [[nodiscard]] AttentionInput input() const;
  [[nodiscard]] AttentionOptions options() const;

  TorchTensor q, k, v;
  TorchTensor lambda, attn_mask, bias, sink, key_begin, key_end, query_starts, key_starts;
  std::string rule;
  std::int64_t causal, window_left, window_right, query_offset, key_offset, sequence_keys;
  double soft_cap;
};

inline constexpr const char* kCallSchema =
    "Tensor q, Tensor k, Tensor v, Tensor? lambda_, Tensor? attn_mask, Tensor? bias, Tensor? sink, "
    "Tensor? key_begin, Tensor? key_end, Tensor? query_starts, Tensor? key_starts, str rule, int "
    "causal, "
    "SymInt window_left, SymInt window_right, SymInt query_offset, SymInt key_offset, SymInt "
    "sequence_keys, "
    "float soft_cap";

// The rule of a text. Models name one rule over and over, so the last one of each thread is kept.
[[nodiscard]] const ScaleRule& parsed_rule(const std::string& text);

// Runs body, and names the core's arguments in its errors as the operators do.
void with_operator_names(const std::function<void()>& body);

}  // namespace isentrope::stable
