// Training of a model, and resuming from a checkpoint.

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "isentrope/error.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tiny_model.h"
#include "tests/support/words.h"
#include "tools/lab/checkpoint.h"
#include "tools/lab/safetensors.h"
#include "tools/lab/trainer.h"

namespace isentrope::lab {
namespace {

bool same_bits(const Trainer& a, const Trainer& b) {
  const auto x = a.state(), y = b.state();
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (x[i].first != y[i].first || !x[i].second.equal(y[i].second)) return false;
  }
  return x.size() == y.size();
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

// AdamW's first step, by its moments: matrices decay; biases, norms and learned factors do not.
TEST(Trainer, MatricesAloneDecay) {
  constexpr double kRate = 0.1;
  ModelConfig config = kTiny;
  config.init = Init::pytorch;  // its biases are not 0
  TrainingPlan plan = kPlan;
  plan.warm_up = 1;
  plan.learning_rate = kRate;
  const std::vector<Token> tokens = text_tokens();
  Transformer model(config, {ScaleRule::ssmax(), true}, 1);
  std::map<std::string, at::Tensor> before;
  for (const auto& [name, parameter] : model.parameters())
    before[name] = parameter.detach().clone();
  Trainer trainer(plan, model, tokens);
  trainer.step();

  std::map<std::string, at::Tensor> after;
  for (const auto& [name, tensor] : trainer.state()) after[name] = tensor.to(at::kDouble);
  std::map<std::int64_t, int> seen;
  for (const auto& [name, start] : before) {
    const bool matrix = start.dim() > 1;
    const at::Tensor mean = after.at("adamw.mean." + name) / (1 - 0.9);
    const at::Tensor square = after.at("adamw.square." + name) / (1 - 0.999);
    const at::Tensor kept = start.to(at::kDouble) * (matrix ? 1 - 0.01 * kRate : 1);
    const at::Tensor expected = kept - kRate * mean / (square.sqrt() + 1e-8);
    const double error = (after.at("model." + name) - expected).abs().max().item<double>();
    const double decay = 0.01 * kRate * start.abs().max().item<double>();
    EXPECT_LT(error, 1e-6) << name;
    if (decay > 1e-5) ++seen[start.dim()];  // ten times the largest error
  }
  EXPECT_GT(seen[2], 8);
  EXPECT_GT(seen[1], 8);
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

TEST(Checkpoint, SaysWhatAFileLacks) {
  const TemporaryFolder folder;
  const auto expect = [&](const std::map<std::string, std::string>& metadata, const char* words) {
    save_tensors({metadata, {}}, folder / "c");
    expect_words(
        message_of([&] { return load_checkpoint(folder / "c", nlohmann::json::object()); }),
        {words});
  };
  expect({{"note", "text"}}, "a checkpoint of this program; got no metadata named isentrope");
  expect({{"isentrope", "{}"}}, "key 'configuration' not found");
}

// Any changed byte, and any truncation.
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

// Without decay their steps are longer by that factor; decay is unchanged.
TEST(Trainer, PositionBiasesHaveALearningRateOfTheirOwn) {
  ModelConfig config = kTiny;
  config.positions = Positions::t5;
  const std::vector<Token> tokens = text_tokens();
  const auto step_of = [&](double factor) {
    TrainingPlan plan = kPlan;
    plan.bias_learning_rate = factor;
    Transformer model(config, {}, 1);
    std::map<std::string, at::Tensor> steps;
    const double kept = 1 - 0.01 * learning_rate(plan, 0);  // factor of decaying parameters
    for (const auto& [name, value] : model.parameters())
      steps[name] = -value.detach() * (value.dim() > 1 ? kept : 1);
    Trainer(plan, model, tokens).step();
    for (const auto& [name, value] : model.parameters()) steps[name] += value.detach();
    return steps;
  };
  const auto plain = step_of(1), faster = step_of(4);
  for (const auto& [name, step] : plain) {
    const double factor = name == kPositionBias ? 4 : 1;
    EXPECT_LT((faster.at(name) - factor * step).abs().max().item<double>(), 1e-6) << name;
  }
  EXPECT_GT(plain.at(kPositionBias).abs().max().item<double>(), 5e-4);
}

}  // namespace
}  // namespace isentrope::lab
