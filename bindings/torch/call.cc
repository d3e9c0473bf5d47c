#include "bindings/torch/call.h"

#include <array>
#include <cstring>
#include <utility>

namespace isentrope::stable {

// Members are initialised in the order of their declaration, which is that of the schema.
CallArguments::CallArguments(Arguments& from)
    : q(from.tensor()),
      k(from.tensor()),
      v(from.tensor()),
      lambda(from.optional_tensor()),
      attn_mask(from.optional_tensor()),
      bias(from.optional_tensor()),
      sink(from.optional_tensor()),
      key_begin(from.optional_tensor()),
      key_end(from.optional_tensor()),
      query_starts(from.optional_tensor()),
      key_starts(from.optional_tensor()),
      rule(from.text()),
      causal(from.integer()),
      window_left(from.integer()),
      window_right(from.integer()),
      query_offset(from.integer()),
      key_offset(from.integer()),
      sequence_keys(from.integer()),
      soft_cap(from.number()) {}

AttentionInput CallArguments::input() const {
  return {number_view("q", q), number_view("k", k), number_view("v", v)};
}

AttentionOptions CallArguments::options() const {
  if (causal < 0 || causal > 2) {
    throw Error("[attention] causal must be 0 (none), 1 (top left) or 2 (bottom right); got " +
                std::to_string(causal));
  }
  return {.rule = parsed_rule(rule),
          .mask = {.causal = static_cast<Causal>(causal),
                   .window_left = window_left,
                   .window_right = window_right,
                   .query_offset = query_offset,
                   .key_offset = key_offset,
                   .sequence_keys = sequence_keys,
                   .key_begin = view_of<std::int64_t, 1>("key_begin", key_begin),
                   .key_end = view_of<std::int64_t, 1>("key_end", key_end),
                   .query_starts = view_of<std::int64_t, 1>("cu_seq_q", query_starts),
                   .key_starts = view_of<std::int64_t, 1>("cu_seq_k", key_starts)},
          .soft_cap = static_cast<float>(soft_cap),
          .admitted = view_of<std::uint8_t, 4>("attn_mask", attn_mask),
          .bias = view_of<float, 4>("bias", bias),
          .sink = view_of<float, 1>("sink", sink),
          .lambda = view_of<float, 3>("lambda_", lambda),
          .parallel_for = run_on_torch_threads};
}

const ScaleRule& parsed_rule(const std::string& text) {
  thread_local std::pair<std::string, ScaleRule> last{ScaleRule().text(), ScaleRule()};
  if (last.first != text) last = {text, ScaleRule::parse(text)};
  return last.second;
}

void with_operator_names(const std::function<void()>& body) {
  static constexpr std::array<std::pair<const char*, const char*>, 10> kNames{{
      {"[attention_forward]", "[attention]"},
      {"[attention_backward]", "[attention]"},
      {"mask.query_starts", "cu_seq_q"},
      {"mask.key_starts", "cu_seq_k"},
      {"pages.table", "block_table"},
      {"pages.keys", "seqused_k"},
      {"mask.", ""},
      {" admitted ", " attn_mask "},
      {" lambda ", " lambda_ "},
      {" sink ", " sinks "},
  }};
  try {
    body();
  } catch (const Error& error) {
    std::string message = error.what();
    for (const auto& [from, to] : kNames) {
      const std::size_t at = message.find(from);
      if (at != std::string::npos) message.replace(at, std::strlen(from), to);
    }
    throw Error(message);
  }
}

}  // namespace isentrope::stable
