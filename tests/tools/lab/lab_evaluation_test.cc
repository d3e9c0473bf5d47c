// Measurements of a model, against numbers that can be computed by hand.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/support/tiny_model.h"
#include "tools/lab/evaluate.h"
#include "tools/lab/measure.h"

namespace isentrope::lab {
namespace {

TEST(Evaluation, LengthsPredictTheSameTokens) {
  const std::vector<Token> tokens = text_tokens();
  const auto text = std::span(tokens).first(512);
  const EvaluationSet a = draw_evaluation_set(text, 16, 4096, kTiny),
                      b = draw_evaluation_set(text, 64, 4096, kTiny);
  EXPECT_EQ(a.windows, 32);
  EXPECT_EQ(b.windows, 8);
  EXPECT_EQ(a.tokens.positions, b.tokens.positions);
  EXPECT_EQ(a.tokens.inputs, b.tokens.inputs);
  EXPECT_EQ(draw_evaluation_set(text, 16, 100, kTiny).windows, 6);

  ModelConfig causal = kTiny;
  causal.objective = Objective::causal;
  const EvaluationSet c = draw_evaluation_set(text, 16, 4096, causal),
                      d = draw_evaluation_set(text, 7, 4096, causal);
  EXPECT_EQ(c.windows, 31);
  EXPECT_EQ(c.tokens.targets.front(), c.tokens.inputs[1]);
  EXPECT_TRUE(std::equal(d.tokens.targets.begin(), d.tokens.targets.begin() + 490,
                         c.tokens.targets.begin()));
}

// At lambda = 0 every row is uniform over n keys: entropy ln n, gradient mass 0, and a countable
// share of keys at a distance of 16 or more.
TEST(Evaluation, StatisticsAreThoseOfTheRows) {
  const std::vector<Token> tokens = text_tokens();
  const EvaluationSet set = draw_evaluation_set(std::span(tokens).first(300), 32, 4096, kTiny);
  const Evaluation flat = evaluate(Transformer(kTiny, {ScaleRule::constant(0)}, 1), set);
  EXPECT_EQ(flat.tokens, 288);
  EXPECT_EQ(flat.predictions, static_cast<std::int64_t>(set.tokens.targets.size()));
  EXPECT_NEAR(flat.entropy, std::log(32), 1e-5);
  EXPECT_EQ(flat.gradient_mass, 0);
  EXPECT_NEAR(flat.share_beyond, 100.0 * 2 * (16 * 17 / 2) / (32 * 32), 1e-3);
  EXPECT_NEAR(flat.distance, (32.0 * 32 - 1) / (3 * 32), 1e-4);

  ModelConfig spread = kTiny;
  spread.init = Init::pytorch;
  const Evaluation sharp = evaluate(Transformer(spread, {ScaleRule::constant(0.1)}, 1), set);
  EXPECT_LT(sharp.entropy, std::log(32));
  EXPECT_NEAR(sharp.gradient_mass, 0.1 * (1 - 1 / 32.0), 1e-3);
  EXPECT_NEAR(sharp.cross_entropy, std::log(257), 0.5);
  const Evaluation near =
      evaluate(Transformer(kTiny, {ScaleRule::constant(0)}, 1), set, {.window = 15});
  EXPECT_EQ(near.share_beyond, 0);
  EXPECT_LT(near.distance, 8);
  EXPECT_LT(near.entropy, std::log(31));
}

// Compares the share with explicit weights, under a rule that scales a bias too.
TEST(Evaluation, ShareBeyondCountsTheBias) {
  ModelConfig config = kTiny;
  config.layers = 1;
  config.positions = Positions::t5;
  const ScaleRule rule = ScaleRule::entropy_invariant(4).with_scaled_bias(true);
  const Transformer model(config, {rule}, 1);
  const std::vector<Token> tokens = text_tokens();
  const EvaluationSet set = draw_evaluation_set(std::span(tokens).first(40), 40, 4096, config);
  double share = 0;
  const auto explicit_share = [&](const LayerAttention& layer) {
    const double factor = rule.on_bias({40, 39, 40}, 8);
    const at::Tensor weights =
        (at::matmul(layer.q, layer.k.mT()) * layer.result.lambda.unsqueeze(-1) +
         layer.options.bias * factor)
            .softmax(-1);
    const at::Tensor far = (at::arange(40).unsqueeze(1) - at::arange(40)).abs().ge(16);
    share = 100 * (weights * far).sum(-1).mean().item<double>();
  };
  (void)model.forward(at::tensor(set.tokens.inputs).view({1, 40}), at::arange(1),
                      {.observer = explicit_share});
  EXPECT_GT(share, 1);
  EXPECT_NEAR(evaluate(model, set).share_beyond, share, 1e-3);
}

// The means of the bands, weighted by their numbers of positions, give the overall mean.
TEST(Evaluation, PositionsOfCausalModelsAddUp) {
  ModelConfig config = kTiny;
  config.objective = Objective::causal;
  const std::vector<Token> tokens = text_tokens();
  const EvaluationSet set = draw_evaluation_set(std::span(tokens).first(129), 32, 4096, config);
  const Evaluation all = evaluate(Transformer(config, {}, 1), set);
  ASSERT_EQ(all.by_position.size(), 6U);
  const double sizes[] = {1, 1, 2, 4, 8, 16};
  double sum = 0;
  for (std::size_t i = 0; i < 6; ++i) sum += sizes[i] / 32 * all.by_position[i];
  EXPECT_NEAR(sum, all.cross_entropy, 1e-9);
}

// From the training length on, the gain multiplies the standard scale and the bias; below, none.
TEST(Measure, ConstantGainActsFromTheTrainingLengthOn) {
  const ScaleRule rule = constant_gain(1.5, 64);
  for (const std::int64_t n : {2, 40, 63}) EXPECT_DOUBLE_EQ(rule.lambda({n, n - 1, n}, 64), 0.125);
  for (const std::int64_t n : {64, 65, 1024}) {
    EXPECT_DOUBLE_EQ(rule.lambda({n, n - 1, n}, 64), 0.1875);
    EXPECT_DOUBLE_EQ(rule.on_bias({n, n - 1, n}, 64), 1.5);
  }
  EXPECT_EQ(curve_gains()[3], 1);
}

// Blocks are in text order: their sums add up, and two lengths predict the same tokens.
TEST(Evaluation, BlocksAddUp) {
  const std::vector<Token> tokens = text_tokens();
  const Transformer model(kTiny, {}, 1);
  std::vector<BlockSums> found;
  for (const std::int64_t length : {16, 32}) {
    const EvaluationSet set = draw_evaluation_set(tokens, length, 4096, kTiny);
    const Evaluation all = evaluate(model, set);
    const BlockSums& blocks = all.blocks;
    ASSERT_EQ(blocks.right.size(), 64U);
    const auto sum = [](const auto& values) {
      return std::accumulate(values.begin(), values.end(), 0.0);
    };
    EXPECT_EQ(sum(blocks.predictions), static_cast<double>(all.predictions));
    EXPECT_NEAR(100 * sum(blocks.right) / sum(blocks.predictions), all.accuracy, 1e-9);
    EXPECT_NEAR(sum(blocks.loss) / sum(blocks.predictions), all.cross_entropy, 1e-9);
    found.push_back(blocks);
  }
  EXPECT_EQ(found[0].predictions, found[1].predictions);
  EXPECT_NE(found[0].loss, found[1].loss);
  const EvaluationSet few = draw_evaluation_set(std::span(tokens).first(100), 32, 4096, kTiny);
  EXPECT_EQ(evaluate(model, few).blocks.right.size(), 3U);
}

// Up to the training length both equal the rule. Beyond it one is constant, and the other grows by
// ln n / ln 64.
TEST(Measure, ProbesFreezeTheScaleOrLetItGrow) {
  for (const ScaleRule& rule :
       {ScaleRule::standard(), ScaleRule::scaled({2.0 / 3}), ScaleRule::entropy_invariant(512)}) {
    const ScaleRule stays = frozen(rule, 64), grows = growing(rule, 64);
    const double there = rule.lambda({64, 63, 64}, 64);
    for (const std::int64_t n : {2, 40, 64}) {
      const RowLength row{n, n - 1, n};
      EXPECT_DOUBLE_EQ(stays.lambda(row, 64), rule.lambda(row, 64));
      EXPECT_DOUBLE_EQ(grows.lambda(row, 64), rule.lambda(row, 64));
    }
    for (const std::int64_t n : {65, 1024}) {
      const RowLength row{n, n - 1, n};
      EXPECT_DOUBLE_EQ(stays.lambda(row, 64), there);
      EXPECT_NEAR(grows.lambda(row, 64), there * std::log(n) / std::log(64), 1e-12);
    }
  }
}

// A probe that equals the model's own rule is not measured twice.
TEST(Measure, ProbesSayWhatIsTheSame) {
  const std::vector<Token> tokens = text_tokens();
  for (const auto& [rule, same] : {std::pair{ScaleRule::standard(), "frozen"},
                                   {ScaleRule::entropy_invariant(512), "growing"}}) {
    const nlohmann::json record = measure_model(
        Transformer(kTiny, {rule}, 1), {rule},
        {.lengths = {16, 64}, .text = tokens, .validation = tokens, .tokens = 1024, .probes = true},
        [](const std::string&) {});
    std::vector<std::string> kinds;
    for (const nlohmann::json& row : record["rows"]) {
      kinds.push_back(row["kind"]);
      EXPECT_EQ(row.contains("same_as"), row["kind"] == same) << row["kind"];
      // At the training length a window hides none of 16 keys, and both scales equal the rule's.
      EXPECT_NEAR(row["cross_entropy"][0].get<double>(),
                  record["rows"][0]["cross_entropy"][0].get<double>(), 1e-6);
    }
    EXPECT_EQ(kinds, (std::vector<std::string>{"trained", "frozen", "frozen_near", "growing",
                                               "growing_near"}));
    EXPECT_EQ(record["block_predictions"].size(), 2U);
  }
}

}  // namespace
}  // namespace isentrope::lab
