// AttentionState: what attention over some of a sequence's keys gave, ready to be merged with the
// rest.
//
// Each row holds its normalised output and its statistics. States over disjoint sets of keys form a
// commutative monoid. With w = softmax(lse_a, lse_b) and the mean logit E[z] = lse - entropy,
//
//   lse       = ln(e^lse_a + e^lse_b)               output   = w_a output_a + w_b output_b
//   entropy   = w_a H_a + w_b H_b - sum w ln w      variance = w_a V_a + w_b V_b + w_a w_b (E_a - E_b)^2
//   collision = w_a^2 C_a + w_b^2 C_b               support, max_logit: sum and largest
//   max_probability = max(w_a P_a, w_b P_b)
//
// merge() is exactly commutative and exactly neutral in rows without keys; it is associative up to
// rounding. Chunks of a cache, hosts of a ring and pages on another machine may therefore split a
// sequence anywhere.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "isentrope/attention.h"
#include "isentrope/row_state.h"

namespace isentrope {

struct AttentionState {
  std::array<std::int64_t, 4> shape{};  // of the output: [batch, heads, queries, value_dim]
  std::vector<RowStats> statistics;     // one a row, row-major
  std::vector<float> output;            // row-major

  AttentionState() = default;
  // Rows that saw no key: the identity of merge(). Throws Error when an extent is negative or there
  // are more than 2^48 elements.
  explicit AttentionState(const std::array<std::int64_t, 4>& extents);

  [[nodiscard]] std::int64_t rows() const { return static_cast<std::int64_t>(statistics.size()); }
  [[nodiscard]] std::int64_t value_dim() const { return shape[3]; }
};

// The state of the keys of this call. Mask::key_offset places them in the sequence and
// Mask::sequence_keys tells rules how long that is. Three options cannot be right for a part of the
// keys:
//
//   - causal bottom_right aligns with the keys of the call, as a window without causal does where
//     Mask::sequence_keys is 0: take top_left, or give sequence_keys, with a query_offset;
//   - `attn_mask` counts the keys of the call, so a rule that depends on n needs a table of lambda instead;
//   - sinks count once, not once a part: they are an Error here, and with_sinks() adds them at the end.
[[nodiscard]] AttentionState attention_state(const AttentionInput& input,
                                             const AttentionOptions& options);

// Throws Error unless both have the same shape and the supports add up to less than 2^63. A side
// whose logits are all -inf weighs nothing, whatever its output.
[[nodiscard]] AttentionState merge(const AttentionState& a, const AttentionState& b);

// The output beside sinks, one logit per head. Statistics stay those of the real keys, so do this
// last.
[[nodiscard]] AttentionState with_sinks(AttentionState state, const View<const float, 1>& sinks);

// Version 3, every number little-endian:
//
//   bytes  0 ...  7   "ISENSTAT"
//          8 ... 11   version, u32
//         12 ... 15   f64 numbers of a row, u32
//         16 ... 47   shape, four i64
//   then of each row  its statistics in the order of statistics.h, lambda left out: f64, and support, i64
//   then the output   f32, row-major, and nothing after it
[[nodiscard]] std::vector<std::byte> to_bytes(const AttentionState& state);

// Bytes may come from anywhere: whatever to_bytes() cannot have written is an Error. NaN rows are
// not.
[[nodiscard]] AttentionState state_from_bytes(std::span<const std::byte> bytes);

}  // namespace isentrope
