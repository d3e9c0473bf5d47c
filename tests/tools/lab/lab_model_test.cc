// The model: positions, initial weights, gradients, and its masks and scales.

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <cmath>

#include "isentrope/error.h"
#include "tests/support/tiny_model.h"
#include "tools/lab/positions.h"
#include "tools/lab/transformer.h"

namespace isentrope::lab {
namespace {

// Scores of q at position i and k at position j depend only on i - j.
TEST(Rotary, ScoresDependOnTheDistanceOnly) {
  const at::Tensor table = rotary_table(40, 8);
  const at::Tensor q = at::randn({1, 1, 1, 8}), k = at::randn({1, 1, 1, 8});
  const auto score = [&](std::int64_t i, std::int64_t j) {
    return (rotate(q, table.slice(0, i, i + 1)) * rotate(k, table.slice(0, j, j + 1)))
        .sum()
        .item<double>();
  };
  for (const std::int64_t shift : {1, 7, 30}) {
    EXPECT_NEAR(score(5, 2), score(5 + shift, 2 + shift), 1e-5);
    EXPECT_NEAR(score(2, 9), score(2 + shift, 9 + shift), 1e-5);
  }
  EXPECT_NEAR(score(0, 0), (q * k).sum().item<double>(), 1e-6);
}

// Component pair j rotates by 10000^(-2j/d) a position.
TEST(Rotary, TurnsPairsByTheirFrequency) {
  const at::Tensor x = at::tensor({1.F, 0.F, 1.F, 0.F}).view({1, 1, 1, 4});
  const at::Tensor y = rotate(x, rotary_table(4, 4).slice(0, 3, 4)).flatten();
  EXPECT_NEAR(y[0].item<double>(), std::cos(3.0), 1e-6);
  EXPECT_NEAR(y[1].item<double>(), std::sin(3.0), 1e-6);
  EXPECT_NEAR(y[2].item<double>(), std::cos(0.03), 1e-6);
  EXPECT_NEAR(y[3].item<double>(), std::sin(0.03), 1e-6);
}

TEST(Rotary, APartOfAHeadTurns) {
  const at::Tensor x = at::randn({1, 3, 1, 8}), y = rotate(x, rotary_table(3, 2));
  EXPECT_TRUE(at::equal(y.narrow(-1, 2, 6), x.narrow(-1, 2, 6)));
  EXPECT_FALSE(at::equal(y.narrow(-1, 0, 2), x.narrow(-1, 0, 2)));
  ModelConfig config = kTiny;
  config.width = 128;
  config.positions = Positions::rope_partial;
  EXPECT_EQ(rotary_dim(config), 16);
  config.positions = Positions::t5;
  EXPECT_EQ(rotary_dim(config), 0);
}

// The buckets of transformers' T5Attention._relative_position_bucket, 32 of them, up to 128.
TEST(T5, BucketsAreThePublishedOnes) {
  const std::pair<std::int64_t, std::int64_t> both_sides[] = {
      {0, 0},     {-1, 1},    {-7, 7}, {-8, 8}, {-12, 9}, {-20, 10}, {-50, 13},
      {-127, 15}, {-500, 15}, {1, 17}, {7, 23}, {8, 24},  {64, 30},  {128, 31}};
  for (const auto& [distance, bucket] : both_sides) {
    EXPECT_EQ(t5_bucket(distance, false, 128), bucket) << distance;
  }
  const std::pair<std::int64_t, std::int64_t> past[] = {{3, 0},    {0, 0},     {-15, 15}, {-16, 16},
                                                        {-40, 23}, {-100, 30}, {-128, 31}};
  for (const auto& [distance, bucket] : past) {
    EXPECT_EQ(t5_bucket(distance, true, 128), bucket) << distance;
  }
}

TEST(T5, BiasIsTheTableByBucket) {
  ModelConfig config = kTiny;
  config.positions = Positions::t5;
  const at::Tensor table = at::randn({2, kT5Buckets});
  const at::Tensor bias = position_bias(config, table, 20);
  ASSERT_EQ(bias.sizes(), (at::IntArrayRef{1, 2, 20, 20}));
  for (const auto& [query, key] : {std::pair{0, 0}, {3, 1}, {0, 19}, {19, 0}, {7, 8}}) {
    EXPECT_EQ(bias[0][1][query][key].item<float>(),
              table[1][t5_bucket(key - query, false, 16)].item<float>());
  }
}

// Slopes of Press et al.'s code: for 12 heads those of 8, and every other one of 16.
TEST(Alibi, SlopesArePublishedAndBiasFallsWithTheDistance) {
  EXPECT_EQ(alibi_slopes(2), (std::vector<double>{1.0 / 16, 1.0 / 256}));
  const std::vector<double> twelve = alibi_slopes(12);
  EXPECT_DOUBLE_EQ(twelve[0], 0.5);
  EXPECT_DOUBLE_EQ(twelve[7], 1.0 / 256);
  EXPECT_DOUBLE_EQ(twelve[8], std::exp2(-0.5));
  EXPECT_DOUBLE_EQ(twelve[11], std::exp2(-3.5));
  ModelConfig config = kTiny;
  config.positions = Positions::alibi;
  const at::Tensor bias = position_bias(config, {}, 9);
  EXPECT_EQ(bias[0][0][2][7].item<float>(), -5.0F / 16);
  EXPECT_EQ(bias[0][1][8][0].item<float>(), -8.0F / 256);
}

TEST(Transformer, RefusesAHeadThatCannotRotate) {
  EXPECT_NO_THROW(validate(kTiny));
  EXPECT_THROW(validate({.vocabulary = 257, .layers = 2, .width = 15, .heads = 2}), Error);
  EXPECT_THROW(validate({.vocabulary = 257, .layers = 2, .width = 6, .heads = 2}), Error);
  EXPECT_THROW(validate({.vocabulary = 257, .layers = 0, .width = 16, .heads = 2}), Error);
}

TEST(Transformer, StartsFromTheSameWeightsUnderEveryRule) {
  const Transformer a(kTiny, {}, 3), b(kTiny, {ScaleRule::log_length()}, 3), other(kTiny, {}, 4);
  for (std::size_t i = 0; i < a.parameters().size(); ++i) {
    EXPECT_TRUE(a.parameters()[i].second.equal(b.parameters()[i].second))
        << a.parameters()[i].first;
  }
  EXPECT_FALSE(a.parameters()[0].second.equal(other.parameters()[0].second));
}

// Mean, deviation and biases of each initialisation.
TEST(Transformer, StartsAsPublished) {
  ModelConfig config = kTiny;
  config.width = 128;
  const auto of = [](const Transformer& model, const std::string& name) {
    for (const auto& [other, value] : model.parameters()) {
      if (other == name) return value.detach();
    }
    throw std::runtime_error("no " + name);
  };
  const Transformer bert(config, {}, 1);
  EXPECT_NEAR(of(bert, "layers.1.qkv.weight").std().item<double>(), 0.02, 4e-4);
  EXPECT_EQ(of(bert, "layers.0.up.bias").abs().max().item<double>(), 0);
  EXPECT_EQ(of(bert, "embedding_norm.weight").min().item<double>(), 1);

  config.init = Init::pytorch;
  const Transformer pytorch(config, {}, 1);
  const double bound = 1 / std::sqrt(128.0);
  EXPECT_NEAR(of(pytorch, "layers.1.qkv.weight").max().item<double>(), bound, 1e-3 * bound);
  EXPECT_NEAR(of(pytorch, "layers.1.qkv.bias").std().item<double>(), bound / std::sqrt(3), 6e-3);
  EXPECT_NEAR(of(pytorch, "embedding").std().item<double>(), 0.02, 4e-4);

  config.shape = ModelShape::modern;
  config.embedding_norm = false;
  const Transformer model(config, {}, 1);
  for (const auto& [name, value] : model.parameters()) {
    EXPECT_EQ(name.find("bias"), std::string::npos) << name;
  }
}

struct Variant {
  const char* name;
  ModelConfig config;
  ModelRule rule{ScaleRule::entropy_invariant(16)};
};

std::vector<Variant> variants() {
  std::vector<Variant> all = {{"roformer", kTiny}, {"modern", kTiny}, {"causal", kTiny}};
  all[1].config.shape = ModelShape::modern;
  all[1].config.embedding_norm = false;
  all[2].config.objective = Objective::causal;
  for (const Positions positions :
       {Positions::rope_partial, Positions::t5, Positions::alibi, Positions::none}) {
    all.push_back({"positions", kTiny});
    all.back().config.positions = positions;
  }
  all.push_back(
      {"t5, bias scaled", kTiny, {ScaleRule::entropy_invariant(16).with_scaled_bias(true)}});
  all.back().config.positions = Positions::t5;
  all.push_back({"learned", kTiny, {ScaleRule::ssmax(), true}});
  return all;
}

// Directional derivative of the loss by central differences, for every parameter of every shape.
TEST(Transformer, GradientIsTheSlopeOfTheLoss) {
  for (const auto& [name, config, rule] : variants()) {
    const Transformer model(config, rule, 1);
    const at::Tensor tokens = at::arange(64).view({4, 16}), positions = at::arange(0, 64, 5);
    const auto loss = [&] {
      return at::cross_entropy_loss(model.forward(tokens, positions), positions);
    };
    loss().backward();
    double square = 0;
    for (const auto& [parameter_name, parameter] : model.parameters()) {
      EXPECT_GT(parameter.grad().abs().max().item<double>(), 0) << name << " " << parameter_name;
      square += parameter.grad().square().sum(at::kDouble).item<double>();
    }
    const auto moved_loss = [&](double by) {
      const c10::AutoGradMode no_gradients(false);
      for (const auto& [_, parameter] : model.parameters()) parameter.add_(parameter.grad(), by);
      const double value = loss().item<double>();
      for (const auto& [_, parameter] : model.parameters()) parameter.sub_(parameter.grad(), by);
      return value;
    };
    const double step = 2e-3 / std::sqrt(square);
    EXPECT_NEAR((moved_loss(step) - moved_loss(-step)) / (2 * step * square), 1, 2e-2) << name;
  }
}

// A causal model's prediction does not depend on later tokens.
TEST(Transformer, CausalModelsSeeThePast) {
  ModelConfig config = kTiny;
  config.objective = Objective::causal;
  const Transformer model(config, {}, 1);
  const at::Tensor tokens = at::arange(16).view({1, 16}), changed = tokens.clone();
  changed[0][9] = 200;
  const at::Tensor a = model.forward(tokens, at::arange(16)),
                   b = model.forward(changed, at::arange(16));
  EXPECT_TRUE(at::equal(a.narrow(0, 0, 9), b.narrow(0, 0, 9)));
  EXPECT_FALSE(at::equal(a[9], b[9]));
}

TEST(Transformer, DropoutTakesAShareAndKeepsTheMean) {
  ModelConfig config = kTiny;
  config.dropout = 0.5;
  const Transformer model(config, {}, 1);
  const at::Tensor tokens = at::arange(16).view({1, 16}), positions = at::arange(16);
  const auto pass = [&](std::uint64_t seed) {
    return model.forward(tokens, positions, {.dropout = at::detail::createCPUGenerator(seed)});
  };
  EXPECT_TRUE(at::equal(pass(1), pass(1)));
  EXPECT_FALSE(at::equal(pass(1), pass(2)));
  EXPECT_FALSE(at::equal(pass(1), model.forward(tokens, positions)));
}

// A learned factor of 1 equals the rule itself; near keys only equals a window.
TEST(Transformer, LooksAsItIsAsked) {
  const at::Tensor tokens = at::arange(32).view({1, 32}), positions = at::arange(32);
  const Transformer fixed(kTiny, {ScaleRule::log_length()}, 1),
      learned(kTiny, {ScaleRule::log_length(), true}, 1), standard(kTiny, {}, 1);
  const at::Tensor logits = fixed.forward(tokens, positions);
  EXPECT_TRUE(at::allclose(logits, learned.forward(tokens, positions), 1e-5, 1e-6));
  EXPECT_TRUE(
      at::equal(logits, standard.forward(tokens, positions, {.rule = ScaleRule::log_length()})));
  const at::Tensor near = standard.forward(tokens, positions, {.window = 4});
  const at::Tensor far = tokens.clone();
  far[0][31] = 200;
  EXPECT_TRUE(at::equal(near[0], standard.forward(far, positions, {.window = 4})[0]));
}

TEST(Transformer, UnitScoresAreCosines) {
  const ModelRule rule = ModelRule::parse("unit(cosine(30))");
  EXPECT_TRUE(rule.unit);
  for (const char* text : {"unit(cosine(tau=30,tau_max=100))", "learned(unit(log_length))"})
    EXPECT_EQ(ModelRule::parse(text), ModelRule::parse(ModelRule::parse(text).text())) << text;
  EXPECT_NE(ModelRule::parse("cosine(30)"), rule);

  ModelConfig config = kTiny;
  config.init = Init::pytorch;
  int layers = 0;
  const auto look = [&](const LayerAttention& layer) {
    ++layers;
    for (const at::Tensor& side : {layer.q, layer.k})
      EXPECT_NEAR(at::linalg_vector_norm(side, 2, {-1}).sub(1).abs().max().item<double>(), 0, 1e-6);
    EXPECT_NEAR(layer.result.lambda.min().item<double>(), 30, 1e-5);
    EXPECT_LE(layer.result.max_logit.max().item<double>(), 30 + 1e-4);
  };
  const at::Tensor tokens = at::arange(20).view({1, 20});
  (void)Transformer(config, rule, 1).forward(tokens, at::arange(20), {.observer = look});
  EXPECT_EQ(layers, 2);
}

// If hidden keys count, scale and bias of a row are those of all keys, the rest of the near ones.
TEST(Transformer, HiddenKeysCountWhereTheyAreToldTo) {
  const ScaleRule rule = ScaleRule::entropy_invariant(16).with_scaled_bias(true);
  for (const Positions positions : {Positions::rope, Positions::t5}) {
    ModelConfig config = kTiny;
    config.layers = 1;
    config.positions = positions;
    const Transformer model(config, {rule}, 1);
    const auto look = [&](const LayerAttention& layer) {
      EXPECT_NEAR(layer.result.lambda.max().item<double>(), rule.lambda({40, 39, 40}, 8), 1e-6);
      EXPECT_NEAR(layer.result.lambda.min().item<double>(), rule.lambda({40, 39, 40}, 8), 1e-6);
      EXPECT_EQ(layer.result.support.max().item<std::int64_t>(), 9);
      const at::Tensor near = (at::arange(40).unsqueeze(1) - at::arange(40)).abs().le(4);
      at::Tensor logits = at::matmul(layer.q, layer.k.mT()) * rule.lambda({40, 39, 40}, 8);
      if (positions == Positions::t5) {
        at::Tensor table;
        for (const auto& [name, value] : model.parameters())
          if (name == kPositionBias) table = value;
        logits = logits + position_bias(config, table, 40) * rule.on_bias({40, 39, 40}, 8);
      }
      const at::Tensor lse = logits.masked_fill(~near, -INFINITY).logsumexp(-1);
      EXPECT_LT((lse - layer.result.lse).abs().max().item<double>(), 1e-4);
    };
    const c10::AutoGradMode no_gradients(false);
    (void)model.forward(at::arange(40).view({1, 40}), at::arange(1),
                        {.window = 4, .hidden_count = true, .observer = look});
  }
}

}  // namespace
}  // namespace isentrope::lab
