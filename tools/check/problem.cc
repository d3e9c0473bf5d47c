#include "tools/check/problem.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <vector>

#include "isentrope/error.h"
#include "src/rules/number_text.h"
#include "src/rules/split.h"

namespace isentrope::check {
namespace {

constexpr std::string_view kFields =
    "dt, kv, shape, mask, rule, lambda, cap, bias, bias_dt, additive_mask, slopes, bias_hides, "
    "admitted, sink, dropout, dropout_seed, pages, sequences, cache, special, bwd, second, stats, "
    "scale, seed";

[[noreturn]] void fail(std::string_view field, std::string_view takes, std::string_view got) {
  throw Error("[problem] " + std::string(field) + " must be " + std::string(takes) + "; got \"" +
              std::string(got) + "\"");
}

template <typename Number>
Number number(std::string_view field, std::string_view text, Number least) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || !(value >= least)) {
    fail(field, "a number of at least " + std::to_string(least), text);
  }
  return value;
}

bool flag(std::string_view field, std::string_view text) {
  if (text != "0" && text != "1") fail(field, "0 or 1", text);
  return text == "1";
}

DType type_from(std::string_view field, std::string_view text) {
  for (const DType type : {DType::f32, DType::bf16, DType::f16})
    if (text == name_of(type)) return type;
  fail(field, "f32, bf16 or f16", text);
}

// Parses N, or N:M with M different from N.
void parse_pair(std::string_view field, std::string_view text, std::int64_t& first,
                std::int64_t& second) {
  const auto parts = split_outside_brackets(text, ':');
  if (parts.size() > 2) fail(field, "N or N:M", text);
  first = number<std::int64_t>(field, parts[0], 0);
  second = parts.size() == 2 ? number<std::int64_t>(field, parts[1], 0) : first;
}

void parse_shape(Problem& p, std::string_view text) {
  const auto parts = split_outside_brackets(text, 'x');
  if (parts.size() != 5) fail("shape", "BATCHxHEADS[:KV_HEADS]xQUERIESxKEYSxDIM[:VALUE_DIM]", text);
  p.batch = number<std::int64_t>("shape", parts[0], 0);
  parse_pair("shape", parts[1], p.heads, p.kv_heads);
  p.queries = number<std::int64_t>("shape", parts[2], 0);
  p.keys = number<std::int64_t>("shape", parts[3], 0);
  parse_pair("shape", parts[4], p.dim, p.value_dim);
}

void parse_two(std::string_view field, std::string_view text, std::int64_t least,
               std::int64_t& first, std::int64_t& second) {
  const auto parts = split_outside_brackets(text, ':');
  if (parts.size() != 2) fail(field, "two numbers N:M", text);
  first = number(field, parts[0], least);
  second = number(field, parts[1], least);
}

void parse_mask(Problem& p, std::string_view text) {
  std::string words;
  for (const MaskWord& word : kMaskWords) words += std::string(word.name) + "=NUMBER, ";
  for (const std::string_view part : split_outside_brackets(text, ',')) {
    const auto equals = part.find('=');
    const std::string_view name = part.substr(0, equals);
    const std::string_view value = equals == std::string_view::npos ? "" : part.substr(equals + 1);
    if (part == "none") continue;
    const auto word = std::ranges::find(kMaskWords, name, &MaskWord::name);
    if (part == "causal:top_left") {
      p.causal = Causal::top_left;
    } else if (part == "causal:bottom_right") {
      p.causal = Causal::bottom_right;
    } else if (part == "left_padding") {
      p.left_padding = true;
    } else if (part == "right_padding") {
      p.right_padding = true;
    } else if (name == "window") {
      parse_two("window", value, -1, p.window_left, p.window_right);
    } else if (name == "offset") {
      parse_two("offset", value, 0, p.query_offset, p.key_offset);
    } else if (name == "documents") {
      p.documents = number<std::int64_t>("documents", value, 1);
    } else if (word != kMaskWords.end()) {
      p.*word->number = number<std::int64_t>(name, value, 1);
    } else {
      fail("mask",
           "none, causal:top_left, causal:bottom_right, window=LEFT:RIGHT, offset=QUERY:KEY, " +
               words + "left_padding, right_padding or documents=COUNT",
           part);
    }
  }
}

void parse_statistic(Problem& p, std::string_view text) {
  StatisticFields<int> fields;
  std::string names;
  for_each_statistic(
      [&](const Statistic& statistic, int) {
        if (statistic.name == text) p.statistic = text;
        names += (names.empty() ? "" : ", ") + std::string(statistic.name);
      },
      fields);
  if (p.statistic.empty() || p.statistic != text) fail("stats", "one of " + names, text);
}

void parse_field(Problem& p, std::string_view name, std::string_view value) {
  if (name == "shape") return parse_shape(p, value);
  if (name == "mask") return parse_mask(p, value);
  if (name == "stats") return parse_statistic(p, value);
  if (name == "dt") {
    p.type = type_from(name, value);
  } else if (name == "kv") {
    p.key_type = type_from(name, value);
  } else if (name == "rule") {
    p.rule = ScaleRule::parse(value);
  } else if (name == "lambda") {
    p.lambda_table = flag(name, value);
  } else if (name == "cap") {
    p.soft_cap = number<float>(name, value, 0);
  } else if (name == "bias") {
    p.bias = flag(name, value);
  } else if (name == "bias_dt") {
    p.bias_type = type_from(name, value);
  } else if (name == "additive_mask") {
    p.additive_mask = flag(name, value);
  } else if (name == "slopes") {
    p.slopes = flag(name, value);
  } else if (name == "bias_hides") {
    p.bias_hides = flag(name, value);
  } else if (name == "admitted") {
    p.admitted = flag(name, value);
  } else if (name == "sink") {
    p.sink = flag(name, value);
  } else if (name == "dropout") {
    p.dropout = number<double>(name, value, 0);
  } else if (name == "dropout_seed") {
    p.dropout_seed = number<std::uint64_t>(name, value, 0);
  } else if (name == "pages") {
    p.page_size = number<std::int64_t>(name, value, 1);
  } else if (name == "sequences") {
    p.sequences = number<std::int64_t>(name, value, 1);
  } else if (name == "cache") {
    p.cache_group = number<std::int64_t>(name, value, 1);
  } else if (name == "special") {
    p.special = flag(name, value);
  } else if (name == "bwd") {
    p.backward = flag(name, value);
  } else if (name == "second") {
    p.second_order = flag(name, value);
  } else if (name == "scale") {
    p.magnitude = number<double>(name, value, 0);
  } else if (name == "seed") {
    p.seed = number<std::uint32_t>(name, value, 0);
  } else {
    fail("a field", "one of " + std::string(kFields), name);
  }
}

void check_sequences(const Problem& p) {
  if (p.sequences == 0) return;
  if (p.page_size == 0) fail("pages", "given with sequences", "0");
  if (p.batch != 1) fail("shape", "of a batch of 1 with sequences", std::to_string(p.batch));
}

// A group that holds Inf becomes NaN as a whole, which the reference does not model.
void check_cache(const Problem& p) {
  if (p.cache_group == 0) return;
  if (p.dim % p.cache_group != 0 || p.value_dim % p.cache_group != 0)
    fail("cache", "a divisor of both dimensions", std::to_string(p.cache_group));
  if (p.special) fail("special", "0 with cache", "1");
}

void check_bias(const Problem& p) {
  const bool is_described =
      p.bias_type != DType::f32 || p.additive_mask || p.slopes || p.bias_hides;
  if (is_described && !p.bias)
    fail("bias", "1 with bias_dt, additive_mask, slopes and bias_hides", "0");
  if (p.key_type && (p.type != DType::f32 || *p.key_type == DType::f32))
    fail("kv", "bf16 or f16, with dt=f32", name_of(*p.key_type));
}

std::string mask_text(const Problem& p) {
  std::string text;
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : ",") + part; };
  const auto two = [](std::int64_t a, std::int64_t b) {
    return std::to_string(a) + ":" + std::to_string(b);
  };
  if (p.causal == Causal::top_left) add("causal:top_left");
  if (p.causal == Causal::bottom_right) add("causal:bottom_right");
  if (p.window_left >= 0 || p.window_right >= 0)
    add("window=" + two(p.window_left, p.window_right));
  if (p.query_offset > 0 || p.key_offset > 0) add("offset=" + two(p.query_offset, p.key_offset));
  for (const MaskWord& word : kMaskWords) {
    if (p.*word.number > 0) add(std::string(word.name) + "=" + std::to_string(p.*word.number));
  }
  if (p.left_padding) add("left_padding");
  if (p.right_padding) add("right_padding");
  if (p.documents > 0) add("documents=" + std::to_string(p.documents));
  return text;
}

}  // namespace

std::string text_of(const Problem& p) {
  const auto pair = [](std::int64_t a, std::int64_t b) {
    return std::to_string(a) + (a == b ? "" : ":" + std::to_string(b));
  };
  std::string text = "shape=" + std::to_string(p.batch) + "x" + pair(p.heads, p.kv_heads) + "x" +
                     std::to_string(p.queries) + "x" + std::to_string(p.keys) + "x" +
                     pair(p.dim, p.value_dim);
  if (p.type != DType::f32) text = "dt=" + std::string(name_of(p.type)) + " " + text;
  if (p.key_type) text = "kv=" + std::string(name_of(*p.key_type)) + " " + text;
  if (const std::string mask = mask_text(p); !mask.empty()) text += " mask=" + mask;
  if (p.rule != ScaleRule()) text += " rule=" + p.rule.text();
  if (p.lambda_table) text += " lambda=1";
  if (p.soft_cap > 0) text += " cap=" + number_text(p.soft_cap);
  if (p.bias) text += " bias=1";
  if (p.bias_type != DType::f32) text += " bias_dt=" + std::string(name_of(p.bias_type));
  if (p.additive_mask) text += " additive_mask=1";
  if (p.slopes) text += " slopes=1";
  if (p.bias_hides) text += " bias_hides=1";
  if (p.admitted) text += " admitted=1";
  if (p.sink) text += " sink=1";
  if (p.dropout > 0) text += " dropout=" + number_text(p.dropout);
  if (p.dropout_seed != 0) text += " dropout_seed=" + std::to_string(p.dropout_seed);
  if (p.page_size > 0) text += " pages=" + std::to_string(p.page_size);
  if (p.sequences > 0) text += " sequences=" + std::to_string(p.sequences);
  if (p.cache_group > 0) text += " cache=" + std::to_string(p.cache_group);
  if (p.special) text += " special=1";
  if (p.backward) text += " bwd=1";
  if (p.second_order) text += " second=1";
  if (!p.statistic.empty()) text += " stats=" + p.statistic;
  if (p.magnitude != 1) text += " scale=" + number_text(p.magnitude);
  if (p.seed != 1) text += " seed=" + std::to_string(p.seed);
  return text;
}

Problem parse_problem(std::string_view line) {
  Problem problem;
  bool has_shape = false;
  std::string fields(line);
  std::ranges::replace(fields, '\t', ' ');
  // Spaces inside a rule's brackets do not end the field.
  for (const std::string_view field : split_outside_brackets(fields, ' ')) {
    if (field.empty()) continue;
    const auto equals = field.find('=');
    if (equals == std::string_view::npos) fail("a field", "NAME=VALUE", field);
    has_shape |= field.starts_with("shape=");
    parse_field(problem, field.substr(0, equals), field.substr(equals + 1));
  }
  if (!has_shape) fail("a problem", "given a shape=BATCHxHEADSxQUERIESxKEYSxDIM", line);
  check_sequences(problem);
  check_cache(problem);
  check_bias(problem);
  return problem;
}

}  // namespace isentrope::check
