// Problem: an attention call as one line of text.
//
//   dt=bf16 shape=2x8:2x333x517x64 mask=causal:bottom_right,window=100:0 rule=entropy_invariant(base=512)
//
// The line is the id of a test, the name of a benchmark and the way to reproduce a failure. Same
// line, same numbers.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "isentrope/attention.h"

namespace isentrope::check {

struct Problem {
  DType type = DType::f32;                          // dt=f32|bf16|f16
  std::optional<DType> key_type{};                  // kv=bf16|f16: k and v, with q in f32
  std::int64_t batch = 1, heads = 1, kv_heads = 1;  // shape=BATCHxHEADS[:KV_HEADS]
  std::int64_t queries = 1, keys = 1, dim = 1,
               value_dim = 1;                         //       xQUERIESxKEYSxDIM[:VALUE_DIM]
  Causal causal = Causal::none;                       // mask=causal:top_left|bottom_right,
  std::int64_t window_left = -1, window_right = -1;   //      window=LEFT:RIGHT, -1 for no limit;
                                                      //      around the diagonal of causal, else
                                                      //      that of bottom_right,
  std::int64_t dilation = 0;                          //      dilation=STEP,
  std::int64_t chunk = 0;                             //      chunk=SIZE,
  std::int64_t prefix = 0;                            //      prefix=KEYS, of the first sequence,
  std::int64_t query_offset = 0, key_offset = 0;      //      offset=QUERY:KEY,
  bool left_padding = false, right_padding = false;   //      left_padding, right_padding,
  std::int64_t documents = 0;                         //      documents=COUNT
  ScaleRule rule{};                                   // rule=...
  bool lambda_table = false;                          // lambda=1: a table instead of the rule
  float soft_cap = 0;                                 // cap=X
  bool bias = false, admitted = false, sink = false;  // bias=1 admitted=1 sink=1
  DType bias_type = DType::f32;                       // bias_dt=bf16|f16
  bool additive_mask = false;                         // additive_mask=1: a bias of 0 and -inf in
                                                      //      runs, with few other numbers
  bool slopes = false, bias_hides = false;            // slopes=1 bias_hides=1
  double dropout = 0;                                 // dropout=P
  std::uint64_t dropout_seed = 0;                     // dropout_seed=N
  std::int64_t page_size = 0;                         // pages=SIZE: a paged cache
  std::int64_t sequences = 0;    // sequences=COUNT: of a paged cache, with their
                                 //      own numbers of keys and of packed queries
  std::int64_t cache_group = 0;  // cache=COLUMNS: keys and values in 8 bits,
                                 //      with a scale for so many columns
  bool special = false;          // special=1: ties, -0, denormals, inf, NaN
  bool backward = false;         // bwd=1
  bool second_order = false;     // second=1: also the tangent pass and the
                                 //      second-order pass
  std::string statistic{};       // stats=NAME: that statistic alone, and its
                                 //      gradient; otherwise all
  double magnitude = 1;          // scale=X: of q's components
  std::uint32_t seed = 1;        // seed=N

  // Returns the number of sequences of keys, each with `keys` or fewer.
  [[nodiscard]] std::int64_t key_batches() const { return sequences > 0 ? sequences : batch; }

  bool operator==(const Problem&) const = default;
};

// Returns the type of k and v.
[[nodiscard]] inline DType type_of_keys(const Problem& problem) {
  return problem.key_type.value_or(problem.type);
}

// A word of mask= with one number: NAME=NUMBER, 0 by default.
struct MaskWord {
  const char* name;
  std::int64_t Problem::* number;
  std::int64_t Mask::* part;                 // that number
  View<const std::int64_t, 1> Mask::* list;  // or per sequence
  bool (*fits)(const Problem& problem);  // whether it can be combined with the mask's other parts
};

inline constexpr std::array kMaskWords = {
    MaskWord{"dilation", &Problem::dilation, &Mask::dilation, nullptr,
             [](const Problem& p) { return p.prefix == 0; }},
    MaskWord{"chunk", &Problem::chunk, &Mask::chunk_size, nullptr,
             [](const Problem& p) { return p.prefix == 0; }},
    MaskWord{"prefix", &Problem::prefix, nullptr, &Mask::prefix_keys,
             [](const Problem& p) { return p.window_left < 0 && p.dilation == 0 && p.chunk == 0; }},
};

// Returns whether the problem asks for a statistic.
[[nodiscard]] inline bool asks_for(const Problem& problem, std::string_view statistic) {
  return problem.statistic.empty() || problem.statistic == statistic;
}

// Returns the line, without fields at their default; parse_problem(text_of(p)) == p.
[[nodiscard]] std::string text_of(const Problem& problem);

// Parses fields in any order, split by spaces. Throws Error naming field, requirement and value.
[[nodiscard]] Problem parse_problem(std::string_view line);

}  // namespace isentrope::check
