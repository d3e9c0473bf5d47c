// Guarantees for rows (docs/semantics.md) on every path: full, causal, split over the keys, paged,
// in half precision, and backward.

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>

#include "tests/support/list_of.h"
#include "tests/support/on_target.h"
#include "tests/support/same_bits.h"
#include "tools/check/judge.h"

namespace isentrope::check {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

constexpr const char* kPaths[] = {"shape=1x4:2x40x70x8",
                                  "shape=1x4:2x40x70x8 mask=causal:bottom_right",
                                  "shape=1x4:2x2x4500x8",
                                  "shape=1x4:2x3x90x8 pages=16",
                                  "shape=1x4:2x2x4500x8 pages=64 mask=causal:bottom_right",
                                  "dt=bf16 shape=1x4:2x30x300x8 mask=window=400:400",
                                  "dt=bf16 shape=1x4:2x30x300x64 mask=causal:bottom_right",
                                  "dt=f16 shape=1x4:2x20x600x8 cap=30"};

class RowPaths : public TargetTest {};
ISENTROPE_ON_EVERY_TARGET(RowPaths);

View<const std::int64_t, 1> one(const std::int64_t& value) { return {&value, {1}, {1}}; }

void expect_all(const char* name, const std::vector<float>& values, float want) {
  for (std::size_t i = 0; i < values.size(); ++i)
    ASSERT_EQ(values[i], want) << name << "[" << i << "]";
}

// Makes every number NaN: inputs, scales and upstream gradients must not affect rows without keys.
void expect_empty_rows(Data& data, AttentionOptions options) {
  const Problem& p = data.problem;
  for (auto* values : {&data.q, &data.k, &data.v}) std::fill(values->begin(), values->end(), kNaN);
  data.refresh();
  const float nan = kNaN;
  options.lambda = {&nan, {p.batch, p.heads, p.queries}, {0, 0, 0}};
  const ForwardResult forward = run_forward(data, options);
  expect_all("output", forward.output, 0);
  for_each_statistic(
      [&]<typename T>(const Statistic& statistic, const std::vector<T>& values) {
        if (statistic.name == "lambda") return;
        const bool is_logit = statistic.name == "lse" || statistic.name == "max_logit";
        for (const T value : values)
          ASSERT_EQ(static_cast<float>(value), is_logit ? -kInfinity : 0) << statistic.name;
      },
      forward);
  if (p.page_size > 0) return;
  reference::GradientInput upstream = random_gradient(p);
  std::fill(upstream.d_output.begin(), upstream.d_output.end(), kNaN);
  for_each_statistic(
      [](const Statistic&, auto& values) { std::fill(values.begin(), values.end(), kNaN); },
      upstream.d_statistics);
  const BackwardResult backward = run_backward(data, forward, upstream, options);
  for (const auto member :
       {&BackwardResult::dq, &BackwardResult::dk, &BackwardResult::dv, &BackwardResult::d_bias,
        &BackwardResult::d_lambda, &BackwardResult::d_sinks})
    expect_all("a gradient", backward.*member, 0);
}

TEST_P(RowPaths, ARowWithoutKeysIsZeroWhateverHidesThem) {
  for (const char* line : kPaths) {
    const auto expect = [&](const char* how, const std::string& extra, const auto& hide) {
      SCOPED_TRACE(std::string(line) + extra + ", hidden by " + how);
      Data data(parse_problem(line + extra));
      AttentionOptions options = data.options();
      hide(options, data.problem);
      expect_empty_rows(data, options);
    };
    const std::int64_t none = 0, all = 1 << 20;
    const std::uint8_t no = 0;
    const float hidden = -kInfinity;
    const auto pairs = [](const Problem& p) {
      return std::array<std::int64_t, 4>{p.batch, p.heads, p.queries, p.keys};
    };
    expect("key_end", "", [&](AttentionOptions& o, const Problem&) { o.mask.key_end = one(none); });
    expect("key_begin", " sink=1",
           [&](AttentionOptions& o, const Problem&) { o.mask.key_begin = one(all); });
    expect("offset", "", [&](AttentionOptions& o, const Problem&) {
      o.mask.window_left = o.mask.window_right = 0;
      o.mask.query_offset = all;
    });
    expect("boolean mask", " sink=1", [&](AttentionOptions& o, const Problem& p) {
      o.attn_mask = {&no, pairs(p), {0, 0, 0, 0}};
    });
    expect("bias", " bias=1", [&](AttentionOptions& o, const Problem& p) {
      o.bias = {&hidden, pairs(p), {0, 0, 0, 0}};
    });
  }
}

TEST_P(RowPaths, OneSeenKeyReturnsItsValueExactlyWhateverLambda) {
  for (const char* line : kPaths) {
    for (const float lambda : {0.0f, 1.0f, -3.0f, 1e6f}) {
      SCOPED_TRACE(line);
      const Data data(parse_problem(line));
      const Problem& p = data.problem;
      const std::int64_t begin = p.keys - p.queries - 2,
                         end = begin + 1;  // the diagonal lets the row see it
      AttentionOptions options = data.options();
      options.mask.key_begin = one(begin);
      options.mask.key_end = one(end);
      options.lambda = {&lambda, {p.batch, p.heads, p.queries}, {0, 0, 0}};
      const ForwardResult got = run_forward(data, options);
      expect_all("entropy", got.entropy, 0);
      expect_all("collision", got.collision, 1);
      expect_all("max_probability", got.max_probability, 1);
      expect_all("variance", got.variance, 0);
      for (std::size_t i = 0; i < got.output.size(); ++i) {
        const std::int64_t row = static_cast<std::int64_t>(i) / p.value_dim;
        const std::int64_t kv_head = row / p.queries / (p.heads / p.kv_heads);
        const std::int64_t at =
            (kv_head * p.keys + begin) * p.value_dim + static_cast<std::int64_t>(i) % p.value_dim;
        ASSERT_EQ(got.output[i], data.v[static_cast<std::size_t>(at)]);
      }
    }
  }
}

TEST_P(RowPaths, LambdaZeroIsUniformOverTheSupport) {
  for (const char* line : kPaths) {
    const Data data(parse_problem(std::string(line) + " rule=constant(scale=0) admitted=1"));
    const ForwardResult got = run_forward(data);
    for (std::size_t row = 0; row < got.entropy.size(); ++row) {
      if (got.support[row] == 0) continue;
      const auto support = static_cast<double>(got.support[row]);
      ASSERT_NEAR(got.entropy[row], std::log(support), 1e-6 * (1 + std::log(support))) << line;
      ASSERT_NEAR(got.collision[row] * support, 1, 1e-6) << line;
    }
  }
}

TEST_P(RowPaths, MaskedKeysDoNotCountInNButAnInfiniteBiasLeavesItAlone) {
  for (const char* line : kPaths) {
    const ScaleRule rule = ScaleRule::entropy_invariant(16);
    const Data masked(
        parse_problem(std::string(line) + " rule=entropy_invariant(base=16) admitted=1"));
    const ForwardResult got = run_forward(masked);
    for (std::size_t row = 0; row < got.lambda.size(); ++row) {
      const double want = rule.lambda({.visible = got.support[row]}, masked.problem.dim);
      ASSERT_NEAR(got.lambda[row], want, 1e-6 * want) << line;
    }
    const Data plain(parse_problem(std::string(line) + " rule=entropy_invariant(base=16)"));
    const Data biased(parse_problem(std::string(line) + " rule=entropy_invariant(base=16) bias=1"));
    const ForwardResult with_bias = run_forward(biased), without = run_forward(plain);
    EXPECT_TRUE(same_bits(with_bias.lambda, without.lambda)) << line;
    std::int64_t fewer = 0;
    for (std::size_t row = 0; row < without.support.size(); ++row) {
      fewer += with_bias.support[row] < without.support[row];
    }
    EXPECT_GT(fewer, 0) << line;
  }
}

// Returns a row of one query head after the other.
std::vector<float> row_of(const std::vector<float>& values, std::int64_t row,
                          std::int64_t columns) {
  const auto begin = values.begin() + row * columns;
  return {begin, begin + columns};
}

TEST_P(RowPaths, AKeyThatIsNoNumberReachesTheRowsThatSeeItAndNoOther) {
  for (const char* line : kPaths) {
    for (const char* hiding : {"", " admitted=1", " bias=1"}) {
      SCOPED_TRACE(std::string(line) + hiding);
      Data data(parse_problem(std::string(line) + hiding));
      const Problem& p = data.problem;
      const auto upstream = random_gradient(p);
      const ForwardResult clean = run_forward(data);
      const BackwardResult clean_gradient =
          p.page_size > 0 ? BackwardResult{} : run_backward(data, clean, upstream);
      const std::int64_t key = p.keys - 1;  // of the first key head
      for (std::int64_t c = 0; c < p.dim; ++c)
        data.k[static_cast<std::size_t>(key * p.dim + c)] = kNaN;
      data.refresh();
      const ForwardResult got = run_forward(data);
      const BackwardResult gradient =
          p.page_size > 0 ? BackwardResult{} : run_backward(data, got, upstream);
      const AttentionOptions options = data.options();
      for (std::int64_t row = 0; row < p.heads * p.queries; ++row) {
        const std::int64_t head = row / p.queries, query = row % p.queries;
        const KeyRange range = row_view(options.mask, 0, query, p.queries, p.keys).keys;
        bool sees = head / (p.heads / p.kv_heads) == 0 && range.begin <= key && key < range.end;
        if (options.attn_mask) sees = sees && options.attn_mask(0, head, query, key) != 0;
        if (options.bias) sees = sees && options.bias(0, head, query, key) != -kInfinity;
        const std::vector<float> output = row_of(got.output, row, p.value_dim);
        if (sees) {
          for (const float value : output) ASSERT_TRUE(std::isnan(value)) << "row " << row;
          ASSERT_TRUE(std::isnan(got.lse[static_cast<std::size_t>(row)]));
          if (p.page_size > 0) continue;
          for (const float value : row_of(gradient.dq, row, p.dim))
            ASSERT_TRUE(std::isnan(value)) << "row " << row;
          continue;
        }
        ASSERT_TRUE(same_bits(output, row_of(clean.output, row, p.value_dim))) << "row " << row;
        ASSERT_TRUE(same_bits(row_of(got.entropy, row, 1), row_of(clean.entropy, row, 1)))
            << "row " << row;
        if (p.page_size > 0) continue;
        ASSERT_TRUE(
            same_bits(row_of(gradient.dq, row, p.dim), row_of(clean_gradient.dq, row, p.dim)))
            << "row " << row;
      }
    }
  }
}

TEST_P(RowPaths, AQueryThatIsNoNumberDoesNotReachTheGradientsOfKeysItDoesNotSee) {
  // Lengths that are no multiple of a tile: tiles round their rows up, over keys that no row sees.
  for (const char* line :
       {"shape=1x1x9x65x8", "shape=1x1x60x300x8 mask=causal:top_left", "dt=bf16 shape=1x1x9x65x32",
        "dt=bf16 shape=1x1x60x300x32 mask=causal:top_left"}) {
    for (const std::int64_t end : {1, 3, 33, 61}) {
      Data data(parse_problem(line));
      const Problem& p = data.problem;
      reference::GradientInput upstream = random_gradient(p);
      for (std::int64_t c = 0; c < p.dim; ++c) {
        const auto at = static_cast<std::size_t>(2 * p.dim + c);
        data.q[at] = kNaN;
        upstream.d_output[at] = kNaN;
      }
      data.refresh();
      AttentionOptions options = data.options();
      options.mask.key_end = one(end);
      const BackwardResult got = run_backward(data, run_forward(data, options), upstream, options);
      for (std::size_t i = static_cast<std::size_t>(end * p.dim); i < got.dk.size(); ++i) {
        const std::size_t key = i / static_cast<std::size_t>(p.dim);
        ASSERT_EQ(got.dk[i], 0) << line << ", key " << key << " of " << end;
        ASSERT_EQ(got.dv[i], 0) << line << ", key " << key << " of " << end;
      }
    }
  }
}

// Its logits are -inf, and 0 times Inf is NaN.
TEST_P(RowPaths, AnInfiniteKeyOfNoWeightReachesTheGradientOfTheQueriesThatSeeIt) {
  for (const char* line : {"shape=1x1x40x70x32", "dt=bf16 shape=1x1x40x70x32"}) {
    Data data(parse_problem(line));
    const auto dim = static_cast<std::size_t>(data.problem.dim);
    for (std::size_t at = 0; at < data.q.size(); at += dim) data.q[at] = -1;
    data.k[5 * dim] = kInfinity;
    data.refresh();
    const ForwardResult forward = run_forward(data);
    const BackwardResult got = run_backward(data, forward, random_gradient(data.problem));
    for (std::size_t i = 0; i < got.dq.size(); ++i) {
      ASSERT_TRUE(std::isfinite(forward.output[i])) << line;
      ASSERT_EQ(std::isnan(got.dq[i]), i % dim == 0) << line << ", number " << i;
    }
  }
}

TEST_P(RowPaths, EqualKeysShareTheWeight) {
  for (const char* line : kPaths) {
    Data data(parse_problem(line));
    const auto dim = static_cast<std::size_t>(data.problem.dim);
    for (std::size_t at = dim; at < data.k.size(); ++at) data.k[at] = data.k[at % dim];
    data.refresh();
    const ForwardResult got = run_forward(data);
    for (std::size_t row = 0; row < got.entropy.size(); ++row) {
      const auto support = static_cast<double>(got.support[row]);
      ASSERT_NEAR(got.entropy[row], std::log(support), 1e-6 * (1 + std::log(support))) << line;
      ASSERT_EQ(got.variance[row], 0) << line;
    }
  }
}

TEST_P(RowPaths, SignedZerosDenormalsAndHugeNumbersAreWithinBudget) {
  for (const char* line : kPaths) {
    for (const char* seed : {"3", "6", "9"}) {  // seeds divisible by 3: only finite numbers
      const std::string problem =
          std::string(line) + " special=1 seed=" + seed +
          (std::string(line).find("pages") == std::string::npos ? " bwd=1" : "");
      const Verdict verdict = Judge(parse_problem(problem)).judge();
      EXPECT_EQ(verdict.outcome, Outcome::passed) << problem << ": " << verdict.worst().where;
    }
  }
}

// Between the documents of two rows is one without queries that spans whole blocks.
TEST_P(RowPaths, BlocksThatNoRowSeesArePassedOver) {
  const Data data(parse_problem("shape=1x2x2x900x16"));
  const std::array<std::int64_t, 4> queries = {0, 1, 1, 2}, keys = {0, 10, 890, 900};
  AttentionOptions options = data.options();
  options.mask.cu_seqlens_q = list_of(queries);
  options.mask.cu_seqlens_k = list_of(keys);
  const Ratio ratio = forward_error_over_budget(
      data.problem, reference::attention_forward(data.reference_input(), options),
      run_forward(data, options), {});
  EXPECT_LE(ratio.worst, 1) << ratio.where;
}

}  // namespace
}  // namespace isentrope::check
