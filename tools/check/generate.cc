#include "tools/check/generate.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <span>
#include <string_view>
#include <vector>

#include "isentrope/rule_catalogue.h"
#include "tools/check/data.h"

namespace isentrope::check {
namespace {

// Register tiles are 2 ... 12 tall and 2 ... 32 wide, as wide as panels and row tiles; query tiles
// have 24 or 48 rows, gradient tiles 128 keys and key blocks 256.
constexpr std::int64_t kLengths[] = {
    1,  2,  3,   4,   5,   6,   7,   8,   9,   11,  12,  13,  15,  16,  17,  23,  24,
    25, 29, 31,  32,  33,  37,  47,  48,  49,  53,  63,  64,  65,  71,  72,  73,  95,
    96, 97, 101, 113, 127, 128, 129, 131, 143, 145, 191, 193, 199, 241, 255, 256, 257};
// Blocks of queries and keys, and splits of a decode step, begin at these lengths.
constexpr std::int64_t kLongLengths[] = {383, 385,  511,  512,  513,  521,
                                         768, 1021, 1023, 1024, 1025, 1537};
constexpr std::int64_t kCacheLengths[] = {4095, 4096, 4097, 4099, 5000, 6143, 6145, 8191, 8193};
constexpr std::int64_t kDims[] = {1,  2,  3,  4,  5,   7,   8,   9,   11,  12, 15,
                                  16, 17, 24, 31, 32,  33,  40,  48,  63,  64, 65,
                                  72, 80, 96, 97, 127, 128, 129, 160, 192, 256};

// Random numbers that are the same with every standard library.
class Draw {
 public:
  Draw(std::uint64_t seed, std::int64_t index)
      : engine_(seed * 0x9e3779b97f4a7c15u + static_cast<std::uint64_t>(index)) {}

  std::int64_t below(std::int64_t count) {
    return static_cast<std::int64_t>(engine_() % static_cast<std::uint64_t>(count));
  }
  bool chance(std::int64_t percent) { return below(100) < percent; }
  template <typename T>
  T one_of(std::span<const T> values) {
    return values[static_cast<std::size_t>(below(static_cast<std::int64_t>(values.size())))];
  }

 private:
  std::mt19937_64 engine_;
};

void draw_shape(Draw& draw, Problem& p, std::int64_t most_work) {
  const auto length = [&] { return draw.one_of<std::int64_t>(kLengths); };
  p.queries = length();
  p.keys = draw.chance(40) ? p.queries : length();
  p.dim = draw.one_of<std::int64_t>(kDims);
  p.value_dim = draw.chance(70) ? p.dim : draw.one_of<std::int64_t>(kDims);
  p.batch = 1 + draw.below(3);
  p.kv_heads = 1 + draw.below(3);
  p.heads = p.kv_heads * (draw.chance(60) ? 1 : 1 + draw.below(8));
  const std::int64_t kind = draw.below(100);
  if (kind < 6) p.keys = draw.one_of<std::int64_t>(kLongLengths);
  if (kind >= 6 && kind < 12) p.queries = draw.one_of<std::int64_t>(kLongLengths);
  if (kind >= 12 && kind < 18) {  // a decode step
    p.queries = 1 + draw.below(3);
    p.keys = draw.one_of<std::int64_t>(kCacheLengths);
  }
  if (kind >= 18 && kind < 21) {
    std::int64_t* const extents[] = {&p.batch, &p.queries, &p.keys};
    *extents[draw.below(3)] = 0;
  }
  // Reduces other extents until the problem is small enough.
  const auto work = [&] { return p.batch * p.heads * p.queries * p.keys * (p.dim + p.value_dim); };
  while (work() > most_work) {
    if (p.batch > 1) {
      --p.batch;
    } else if (p.kv_heads > 1) {
      p.heads = p.heads / p.kv_heads * (p.kv_heads - 1);
      --p.kv_heads;
    } else if (p.heads > 2) {
      p.heads /= 2;
    } else if (p.dim + p.value_dim > 16) {
      p.dim = std::max<std::int64_t>(1, p.dim * 2 / 3);
      p.value_dim = std::max<std::int64_t>(1, p.value_dim * 2 / 3);
    } else {
      (p.queries > p.keys ? p.queries : p.keys) = length();
    }
  }
}

void draw_mask_parts(Draw& draw, Problem& p) {
  constexpr std::array kCausal = {Causal::none, Causal::none, Causal::top_left,
                                  Causal::bottom_right};
  p.causal = draw.one_of<Causal>(kCausal);
  if (draw.chance(25)) {
    // Windows reach at most as far as there are keys, and usually at least one key.
    const std::int64_t reach = std::max<std::int64_t>(p.keys, 1);
    p.window_left = draw.below(reach + 1) - 1;
    p.window_right = draw.below(reach + 1) - 1;
  }
  if (draw.chance(15)) {
    p.query_offset = draw.below(p.keys + 1);
    p.key_offset = draw.below(p.queries + 1);
  }
  p.left_padding = draw.chance(15);
  p.right_padding = draw.chance(15);
  if (draw.chance(15)) p.documents = 1 + draw.below(6);
  for (const MaskWord& word : kMaskWords) {
    if (draw.chance(12) && word.fits(p))
      p.*word.number = 1 + draw.below(std::max<std::int64_t>(p.keys, 1));
  }
}

// Whether most rows see no key: there are many more rows than keys, or masks hide them.
bool hides_keys_from_most_rows(const Problem& p) {
  Problem small = p;  // without options that do not affect the mask
  small.heads = small.kv_heads = small.dim = small.value_dim = 1;
  small.bias_type = DType::f32;
  small.additive_mask = small.slopes = small.bias_hides = false;
  small.bias = small.admitted = small.lambda_table = false;
  small.page_size = small.sequences = 0;
  const Data data(small);
  const Mask mask = data.options().mask;
  std::int64_t rows = 0;
  for (std::int64_t batch = 0; batch < p.batch; ++batch) {
    for (std::int64_t query = 0; query < p.queries; ++query)
      rows += row_view(mask, batch, query, p.queries, p.keys).keys.size() > 0;
  }
  return rows * 5 < p.batch * p.queries;
}

// Draws a mask. Keeps one in four that hide keys from most rows: valid, but zeros test little.
void draw_mask(Draw& draw, Problem& p) {
  const Problem without = p;
  do {
    p = without;
    draw_mask_parts(draw, p);
  } while (p.keys > 0 && hides_keys_from_most_rows(p) && !draw.chance(25));
}

// Draws a rule of the catalogue with numbers of its domains: lengths of short rows, others near 0.
ScaleRule draw_catalogued(Draw& draw, std::int64_t heads) {
  static const std::vector<ScaleRule> kRules = ScaleRule::all();
  const std::string_view name = draw.one_of<ScaleRule>(kRules).terms().front().name;
  std::vector<PerHead> arguments;
  for (const RuleParameter& parameter : find_rule(name)->parameters) {
    const double low = std::max(parameter.low, -2.0);
    const double high = std::min(parameter.high, low < 1 ? 2.0 : 64.0);
    const bool differs = parameter.kind == ParameterKind::per_head && draw.chance(50);
    for (double& number : arguments.emplace_back(differs ? heads : 1))
      number = low + (high - low) * static_cast<double>(1 + draw.below(20)) / 20;
  }
  return ScaleRule::make(name, arguments).with_length({.n_min = draw.chance(15) ? 4.0 : 1.0});
}

// Draws a rule whose lambda times q is a float in the longest row; where it is not, a row may be
// NaN. The exponent of `power` may be infinite at one dimension.
ScaleRule draw_rule(Draw& draw, const Problem& p) {
  constexpr double kMost = 1e20;
  const RowLength longest{p.keys, p.keys, p.keys};
  while (true) {
    ScaleRule rule = draw_catalogued(draw, p.heads);
    if (std::abs(rule.lambda(longest, p.dim)) < kMost) return rule;
  }
}

void draw_options(Draw& draw, Problem& p) {
  constexpr std::array kCaps = {0.5f, 5.0f, 30.0f, 1000.0f};
  constexpr std::array kMagnitudes = {1e-6, 1e-3, 0.1, 10.0, 100.0, 1e4, 1e6};
  constexpr std::array kTypes = {DType::f32, DType::f32, DType::bf16, DType::f16};
  p.type = draw.one_of<DType>(kTypes);
  if (draw.chance(70)) p.rule = draw_rule(draw, p);
  p.lambda_table = draw.chance(12);
  if (draw.chance(18)) p.soft_cap = draw.one_of<float>(kCaps);
  p.bias = draw.chance(18);
  p.admitted = draw.chance(18);
  p.sink = draw.chance(18);
  p.special = draw.chance(8);
  if (draw.chance(40)) p.magnitude = draw.one_of<double>(kMagnitudes);
  // Larger q would be infinite in f16; its logits overflow f16 before that.
  if (p.type == DType::f16) p.magnitude = std::min(p.magnitude, 1e4);
  if (p.keys > 0 && draw.chance(8)) p.page_size = 1 + draw.below(40);
  p.backward = p.page_size == 0;
}

void draw_dropout(Draw& draw, Problem& p) {
  constexpr std::array kShares = {0.1, 0.1, 0.25, 0.5, 1e-9};
  // With special numbers, 6e4 times a dropout factor overflows f16, and so does its gradient.
  if (!draw.chance(15) || (p.special && p.type == DType::f16)) return;
  p.dropout = draw.one_of<double>(kShares);
  // Sets both words of a seed, within the integers that JSON represents.
  p.dropout_seed = static_cast<std::uint64_t>(draw.below(std::int64_t{1} << 53));
}

// Drawn last, so that problems without these fields stay as they were.
void draw_host_fields(Draw& draw, Problem& p) {
  constexpr std::array kHalves = {DType::bf16, DType::f16};
  if (draw.chance(25) && p.type == DType::f32 && p.page_size == 0 && !p.special) {
    p.key_type = draw.one_of<DType>(kHalves);
    p.magnitude = std::min(p.magnitude, 1e4);
  }
  if (!p.bias) return;
  if (draw.chance(40)) p.bias_type = draw.one_of<DType>(kHalves);
  p.additive_mask = draw.chance(40);
  p.slopes = draw.chance(25);
  p.bias_hides = draw.chance(25);
}

// Draws sequences with their own numbers of queries and keys, for problems of one batch.
void draw_sequences(Draw& draw, Problem& p) {
  if (p.batch != 1 || p.keys == 0 || !draw.chance(15)) return;
  p.sequences = 1 + draw.below(4);
  if (p.page_size == 0) p.page_size = 1 + draw.below(40);
  p.backward = false;
  p.documents = 0;
  p.dropout = 0;
  p.dropout_seed = 0;
}

}  // namespace

Problem generated_problem(std::uint64_t seed, std::int64_t index, std::int64_t most_work) {
  Draw draw(seed, index);
  Problem p;
  draw_shape(draw, p, most_work);
  draw_options(draw, p);
  draw_mask(draw, p);
  draw_dropout(draw, p);
  draw_host_fields(draw, p);
  draw_sequences(draw, p);
  p.second_order = p.backward && draw.chance(40);
  p.seed = static_cast<std::uint32_t>(index + 1);
  return p;
}

}  // namespace isentrope::check
