// The model, its training and its checkpoints.

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <cmath>

#include "isentrope/error.h"
#include "lab/checkpoint.h"
#include "lab/evaluate.h"
#include "lab/roformer.h"
#include "lab/safetensors.h"
#include "lab/tokenizer.h"
#include "lab/trainer.h"
#include "tests/support/lab_text.h"
#include "tests/support/temporary_folder.h"

namespace isentrope::lab {
namespace {

const RoformerShape kTiny{.vocabulary = 257, .layers = 2, .width = 16, .heads = 2};
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

TEST(Roformer, RefusesAHeadThatCannotRotate) {
  EXPECT_NO_THROW(validate(kTiny));
  EXPECT_THROW(validate({.vocabulary = 257, .layers = 2, .width = 15, .heads = 2}), Error);
  EXPECT_THROW(validate({.vocabulary = 257, .layers = 2, .width = 6, .heads = 2}), Error);
  EXPECT_THROW(validate({.vocabulary = 257, .layers = 0, .width = 16, .heads = 2}), Error);
}

TEST(Roformer, StartsFromTheSameWeightsUnderEveryRule) {
  const Roformer a(kTiny, ScaleRule::standard(), 3), b(kTiny, ScaleRule::log_length(), 3);
  const Roformer other(kTiny, ScaleRule::standard(), 4);
  for (std::size_t i = 0; i < a.parameters().size(); ++i) {
    EXPECT_TRUE(a.parameters()[i].second.equal(b.parameters()[i].second))
        << a.parameters()[i].first;
  }
  EXPECT_FALSE(a.parameters()[0].second.equal(other.parameters()[0].second));
}

// Directional derivative of the loss along the gradient, by central differences.
TEST(Roformer, GradientIsTheSlopeOfTheLoss) {
  const Roformer model(kTiny, ScaleRule::entropy_invariant(16), 1);
  const at::Tensor tokens = at::arange(64).view({4, 16}), positions = at::arange(0, 64, 5);
  const auto loss = [&] {
    return at::cross_entropy_loss(model.forward(tokens, positions), positions);
  };
  loss().backward();
  double square = 0;
  for (const auto& [name, parameter] : model.parameters()) {
    EXPECT_GT(parameter.grad().abs().max().item<double>(), 0) << name;
    square += parameter.grad().square().sum(at::kDouble).item<double>();
  }
  const auto moved_loss = [&](double by) {
    const c10::AutoGradMode no_gradients(false);
    for (const auto& [name, parameter] : model.parameters()) parameter.add_(parameter.grad(), by);
    const double value = loss().item<double>();
    for (const auto& [name, parameter] : model.parameters()) parameter.sub_(parameter.grad(), by);
    return value;
  };
  const double step = 1e-2 / std::sqrt(square);
  EXPECT_NEAR((moved_loss(step) - moved_loss(-step)) / (2 * step * square), 1, 2e-2);
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
  EXPECT_EQ(draw_batch(kPlan, 3, tokens, 256).inputs, draw_batch(kPlan, 3, tokens, 256).inputs);
  EXPECT_NE(draw_batch(kPlan, 3, tokens, 256).inputs, draw_batch(kPlan, 4, tokens, 256).inputs);
  EXPECT_EQ(draw_batch(kPlan, 3, tokens, 256).inputs.size(), 128U);
}

TEST(Trainer, LossGoesDown) {
  const std::vector<Token> tokens = text_tokens();
  Roformer model(kTiny, ScaleRule::entropy_invariant(), 1);
  Trainer trainer(kPlan, model, tokens, 256);
  const double first = trainer.step();
  double last = 0;
  while (!trainer.finished()) last = trainer.step();
  EXPECT_NEAR(first, std::log(257), 0.5);
  EXPECT_LT(last, 0.7 * first);
}

TEST(Trainer, StopsBeforeALossThatIsNoNumber) {
  const std::vector<Token> tokens = text_tokens();
  Roformer model(kTiny, ScaleRule::standard(), 1);
  {
    const c10::AutoGradMode no_gradients(false);
    model.parameters()[0].second.fill_(std::nan(""));
  }
  Trainer trainer(kPlan, model, tokens, 256);
  EXPECT_THROW(trainer.step(), Divergence);
  EXPECT_EQ(trainer.steps_done(), 0);
}

TEST(Checkpoint, GoesOnWithTheSameBits) {
  const TemporaryFolder folder;
  const std::vector<Token> tokens = text_tokens();
  Roformer model(kTiny, ScaleRule::standard(), 1), resumed_model(kTiny, ScaleRule::standard(), 1);
  Trainer trainer(kPlan, model, tokens, 256), resumed(kPlan, resumed_model, tokens, 256);
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
  Roformer model(kTiny, ScaleRule::standard(), 1);
  save_checkpoint(folder / "c", {{"width", 16}}, Trainer(kPlan, model, tokens, 256), {});
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
  const auto held_out = std::span(tokens).first(512);
  const EvaluationSet a = draw_evaluation_set(held_out, 16, 256, 1),
                      b = draw_evaluation_set(held_out, 64, 256, 1);
  EXPECT_EQ(a.windows, 32);
  EXPECT_EQ(b.windows, 8);
  EXPECT_EQ(a.tokens.positions, b.tokens.positions);
  EXPECT_EQ(a.tokens.inputs, b.tokens.inputs);
}

// At lambda = 0 every row is uniform over n keys: entropy ln n, and gradient mass 0.
TEST(Evaluation, StatisticsAreThoseOfTheRows) {
  const std::vector<Token> tokens = text_tokens();
  const EvaluationSet set = draw_evaluation_set(std::span(tokens).first(300), 32, 256, 1);
  const Evaluation flat = evaluate(Roformer(kTiny, ScaleRule::constant(0), 1), set);
  EXPECT_EQ(flat.tokens, 288);
  EXPECT_EQ(flat.predictions, static_cast<std::int64_t>(set.tokens.targets.size()));
  EXPECT_NEAR(flat.entropy, std::log(32), 1e-5);
  EXPECT_EQ(flat.gradient_mass, 0);

  const Evaluation sharp = evaluate(Roformer(kTiny, ScaleRule::constant(0.1), 1), set);
  EXPECT_LT(sharp.entropy, std::log(32));
  EXPECT_NEAR(sharp.gradient_mass, 0.1 * (1 - 1 / 32.0), 1e-3);
  EXPECT_NEAR(sharp.cross_entropy, std::log(257), 0.5);
}

}  // namespace
}  // namespace isentrope::lab
