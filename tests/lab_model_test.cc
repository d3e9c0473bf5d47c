// The model, its training and its checkpoints.

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <cmath>

#include "isentrope/error.h"
#include "lab/checkpoint.h"
#include "lab/evaluate.h"
#include "lab/measure.h"
#include "lab/positions.h"
#include "lab/safetensors.h"
#include "lab/tokenizer.h"
#include "lab/trainer.h"
#include "lab/transformer.h"
#include "tests/support/lab_text.h"
#include "tests/support/temporary_folder.h"

namespace isentrope::lab {
namespace {

const ModelConfig kTiny{
    .vocabulary = 257, .layers = 2, .width = 16, .heads = 2, .train_length = 16};
const TrainingPlan kPlan{
    .steps = 60, .warm_up = 12, .batch = 8, .length = 16, .learning_rate = 1e-2, .seed = 1};

std::vector<Token> text_tokens() { return byte_tokenizer()->encode(make_text(5000)); }

bool same_bits(const Trainer& a, const Trainer& b) {
  const auto x = a.state(), y = b.state();
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (x[i].first != y[i].first || !x[i].second.equal(y[i].second)) return false;
  }
  return x.size() == y.size();
}

// q at position i and k at position j see only i - j.
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

// Component pair j turns by 10000^(-2j/d) a position.
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

// The slopes of Press et al.'s code: for 12 heads those of 8, and every other of 16.
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

// Mean, deviation and biases of the starts by name.
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

// Directional derivative of the loss along the gradient, by central differences: every parameter of
// every shape, the t5 table and learned factors among them, has its gradient.
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

// What a causal model says of a token does not depend on those behind it.
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

// A learned factor of 1 is the rule itself; near keys only is what a window hides.
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

TEST(Trainer, LearningRateRisesThenFallsToZero) {
  EXPECT_DOUBLE_EQ(learning_rate(kPlan, 0), 1e-2 / 12);
  EXPECT_DOUBLE_EQ(learning_rate(kPlan, 11), 1e-2);
  EXPECT_DOUBLE_EQ(learning_rate(kPlan, 12), 1e-2);
  EXPECT_DOUBLE_EQ(learning_rate(kPlan, 36), 0.5e-2);
  EXPECT_DOUBLE_EQ(learning_rate(kPlan, 60), 0);
}

TEST(Trainer, DrawsAnotherBatchEachStepAndTheSameOneAgain) {
  const std::vector<Token> tokens = text_tokens();
  const auto inputs = [&](std::int64_t step) {
    return draw_batch(kPlan, step, tokens, kTiny).inputs;
  };
  EXPECT_EQ(inputs(3), inputs(3));
  EXPECT_NE(inputs(3), inputs(4));
  EXPECT_EQ(inputs(3).size(), 128U);
}

TEST(Trainer, CausalBatchesPredictTheTokenBehind) {
  ModelConfig config = kTiny;
  config.objective = Objective::causal;
  const Examples batch = draw_batch(kPlan, 3, text_tokens(), config);
  ASSERT_EQ(batch.inputs.size(), 128U);
  ASSERT_EQ(batch.positions.size(), 128U);
  for (std::size_t i = 0; i + 1 < 128; ++i) {
    EXPECT_EQ(batch.positions[i], static_cast<std::int64_t>(i));
    if (i % 16 != 15) {
      EXPECT_EQ(batch.targets[i], batch.inputs[i + 1]) << i;
    }
  }
}

TEST(Trainer, LossGoesDown) {
  const std::vector<Token> tokens = text_tokens();
  Transformer model(kTiny, {ScaleRule::entropy_invariant()}, 1);
  Trainer trainer(kPlan, model, tokens);
  const double first = trainer.step();
  double last = 0;
  while (!trainer.finished()) last = trainer.step();
  EXPECT_NEAR(first, std::log(257), 0.5);
  EXPECT_LT(last, 0.7 * first);
}

TEST(Trainer, StopsBeforeALossThatIsNoNumber) {
  const std::vector<Token> tokens = text_tokens();
  Transformer model(kTiny, {}, 1);
  {
    const c10::AutoGradMode no_gradients(false);
    model.parameters()[0].second.fill_(std::nan(""));
  }
  Trainer trainer(kPlan, model, tokens);
  EXPECT_THROW(trainer.step(), Divergence);
  EXPECT_EQ(trainer.steps_done(), 0);
}

TEST(Checkpoint, GoesOnWithTheSameBits) {
  const TemporaryFolder folder;
  const std::vector<Token> tokens = text_tokens();
  Transformer model(kTiny, {}, 1), resumed_model(kTiny, {}, 1);
  Trainer trainer(kPlan, model, tokens), resumed(kPlan, resumed_model, tokens);
  TrainingHistory history;
  for (int i = 0; i < 10; ++i) history.loss.push_back(trainer.step());
  save_checkpoint(folder / "c", {{"width", 16}}, trainer, history);
  for (int i = 0; i < 10; ++i) trainer.step();

  const Checkpoint checkpoint = load_checkpoint(folder / "c", {{"width", 16}});
  EXPECT_EQ(checkpoint.history.loss, history.loss);
  resumed.restore(checkpoint.state, checkpoint.steps_done);
  EXPECT_EQ(resumed.steps_done(), 10);
  for (int i = 0; i < 10; ++i) resumed.step();
  EXPECT_TRUE(same_bits(trainer, resumed));
}

TEST(Checkpoint, NamesWhatDiffers) {
  const TemporaryFolder folder;
  const std::vector<Token> tokens = text_tokens();
  Transformer model(kTiny, {}, 1);
  save_checkpoint(folder / "c", {{"width", 16}}, Trainer(kPlan, model, tokens), {});
  try {
    (void)load_checkpoint(folder / "c", {{"width", 32}});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("width is 16 there and 32 here"), std::string::npos)
        << error.what();
  }
}

// Whatever byte is wrong, and wherever the file ends.
TEST(Checkpoint, NoticesDamage) {
  const TemporaryFolder folder;
  save_tensors({{{"note", "text"}}, {{"x", at::arange(100).to(at::kFloat)}}}, folder / "good");
  const std::string good = read_file(folder / "good");
  EXPECT_TRUE(
      load_tensors(folder / "good").tensors.at(0).second.equal(at::arange(100).to(at::kFloat)));
  for (std::size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 1);
    EXPECT_THROW((void)load_tensors(write_file(folder / "bad", bad)), Error) << "byte " << i;
    EXPECT_THROW((void)load_tensors(write_file(folder / "bad", good.substr(0, i))), Error)
        << "size " << i;
  }
}

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

// At lambda = 0 every row is uniform over n keys: entropy ln n, and gradient mass 0; the keys at a
// distance of 16 or more are then a share that can be counted.
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

// The share against explicit weights, where a rule scales a bias too.
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

// The means of the bands, weighted by how many positions each has, are the mean of all.
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

// From the training length on the gain is on the standard scale and its bias, below it there is
// none.
TEST(Measure, ConstantGainActsFromTheTrainingLengthOn) {
  const ScaleRule rule = constant_gain(1.5, 64);
  for (const std::int64_t n : {2, 40, 63}) EXPECT_DOUBLE_EQ(rule.lambda({n, n - 1, n}, 64), 0.125);
  for (const std::int64_t n : {64, 65, 1024}) {
    EXPECT_DOUBLE_EQ(rule.lambda({n, n - 1, n}, 64), 0.1875);
    EXPECT_DOUBLE_EQ(rule.on_bias({n, n - 1, n}, 64), 1.5);
  }
  EXPECT_EQ(curve_gains()[3], 1);
}

}  // namespace
}  // namespace isentrope::lab
