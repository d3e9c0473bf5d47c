// AttentionState: attention over some of a sequence's keys, to be merged with that of the rest.
//
// Each row holds its normalised output and its statistics. States over disjoint sets of keys form a
// commutative monoid. With w = softmax(lse_a, lse_b) and the mean logit E[z] = lse - entropy,
//
//   lse       = ln(e^lse_a + e^lse_b)               output   = w_a output_a + w_b output_b
//   entropy   = w_a H_a + w_b H_b - sum w ln w      variance = w_a V_a + w_b V_b + w_a w_b (E_a - E_b)^2
//   collision = w_a^2 C_a + w_b^2 C_b               support, max_logit: sum and largest
//   max_probability = max(w_a P_a, w_b P_b)
//
// merge() is exactly commutative, and rows without keys are an exact identity; it is associative up
// to rounding. A sequence may therefore be split anywhere: into chunks of a cache, over the hosts
// of a ring, or into pages on another machine.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "isentrope/attention.h"
#include "isentrope/statistics.h"

namespace isentrope {

// Output and statistics of every row over some keys.
struct AttentionState {
  std::array<std::int64_t, 4> shape{};  // of the output: [batch, heads, queries, value_dim]
  std::vector<RowStats> statistics;     // one for each row, row-major
  std::vector<float> output;            // row-major

  AttentionState() = default;
  // Makes rows without keys, the identity of merge(). Throws Error if an extent is negative or
  // there are more than 2^48 elements.
  explicit AttentionState(const std::array<std::int64_t, 4>& extents);

  [[nodiscard]] std::int64_t rows() const { return static_cast<std::int64_t>(statistics.size()); }
  [[nodiscard]] std::int64_t value_dim() const { return shape[3]; }
};

// Computes attention over the keys of this call, as attention_forward() does, and returns its
// state. Mask::key_offset is the place of the keys in the sequence, and Mask::sequence_keys the
// length of the sequence, which rules use. Three options need care for a part of the keys:
//
//   - a mask without Mask::sequence_keys aligns with the keys of the call: pass it, and query_offset;
//   - `attn_mask` counts the keys of the call, so pass lambda for each row instead of a rule of n;
//   - sinks must count once, not in every part: they are an Error here, and with_sinks() adds them last.
//
// Throws Error if an argument is invalid.
[[nodiscard]] AttentionState attention_state(const AttentionInput& input,
                                             const AttentionOptions& options);

// Returns the state over the keys of both, which must be disjoint. A row whose logits are all -inf
// has no weight, whatever its output. Throws Error unless both have the same shape and the supports
// add up to less than 2^63.
[[nodiscard]] AttentionState merge(const AttentionState& a, const AttentionState& b);

// Returns the state with sinks, one logit per head, in its output. Statistics remain those of the
// real keys, so add sinks last. Throws Error unless there is one sink for each head.
[[nodiscard]] AttentionState with_sinks(AttentionState state, const View<const float, 1>& sinks);

// Returns the state as bytes, to store or send it. Version 3, every number little-endian:
//
//   bytes  0 ...  7   "ISENSTAT"
//          8 ... 11   version, u32
//         12 ... 15   f64 numbers of a row, u32
//         16 ... 47   shape, four i64
//   then of each row  its statistics in the order of statistics.h, without lambda: f64, and support, i64
//   then the output   f32, row-major, and nothing after it
[[nodiscard]] std::vector<std::byte> to_bytes(const AttentionState& state);

// Parses the output of to_bytes(). Bytes may come from anywhere: throws Error if to_bytes() cannot
// have written them. Rows of NaN are valid.
[[nodiscard]] AttentionState state_from_bytes(std::span<const std::byte> bytes);

}  // namespace isentrope
