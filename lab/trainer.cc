#include "lab/trainer.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lab/random.h"

namespace isentrope::lab {
namespace {

constexpr double kBeta1 = 0.9;
constexpr double kBeta2 = 0.999;
constexpr double kEpsilon = 1e-8;
constexpr double kWeightDecay = 0.01;

}  // namespace

double learning_rate(const TrainingPlan& plan, std::int64_t step) {
  const double rising = static_cast<double>(step + 1) / static_cast<double>(plan.warm_up);
  const double falling =
      static_cast<double>(plan.steps - step) / static_cast<double>(plan.steps - plan.warm_up);
  return plan.learning_rate * (step < plan.warm_up ? rising : falling);
}

MaskedTokens draw_batch(const TrainingPlan& plan, std::int64_t step, std::span<const Token> corpus,
                        Token mask_token) {
  std::vector<Token> tokens;
  tokens.reserve(static_cast<std::size_t>(plan.batch * plan.length));
  const auto starts = static_cast<std::int64_t>(corpus.size()) - plan.length + 1;
  for (std::int64_t i = 0; i < plan.batch; ++i) {
    const auto window = static_cast<std::uint64_t>(step * plan.batch + i);
    const std::int64_t start = random_below(random_bits(plan.seed, Stream::window, window), starts);
    const auto chosen =
        corpus.subspan(static_cast<std::size_t>(start), static_cast<std::size_t>(plan.length));
    tokens.insert(tokens.end(), chosen.begin(), chosen.end());
  }
  return mask_tokens(tokens, mask_token, plan.seed,
                     static_cast<std::uint64_t>(step) * tokens.size());
}

Divergence::Divergence(std::int64_t step, double loss)
    : std::runtime_error(
          fmt::format("the loss of step {} is {}; a lower learning rate may help", step, loss)) {}

Trainer::Trainer(const TrainingPlan& plan, Roformer& model, std::span<const Token> corpus,
                 Token mask_token)
    : plan_(plan), model_(model), corpus_(corpus), mask_token_(mask_token) {
  const at::Tensor step_count = at::zeros({});
  for (const auto& [name, parameter] : model.parameters()) {
    parameters_.push_back(parameter);
    mean_.push_back(at::zeros_like(parameter));
    square_.push_back(at::zeros_like(parameter));
    step_counts_.push_back(step_count);
  }
}

double Trainer::step() {
  MaskedTokens batch = draw_batch(plan_, steps_done_, corpus_, mask_token_);
  const at::Tensor tokens =
      at::from_blob(batch.inputs.data(), {plan_.batch, plan_.length}, at::kLong);
  const auto masked = static_cast<std::int64_t>(batch.positions.size());
  const at::Tensor positions = at::from_blob(batch.positions.data(), {masked}, at::kLong);
  const at::Tensor targets = at::from_blob(batch.targets.data(), {masked}, at::kLong);

  const at::Tensor loss = at::cross_entropy_loss(model_.forward(tokens, positions), targets);
  const double value = loss.item<double>();
  if (!std::isfinite(value)) throw Divergence(steps_done_ + 1, value);
  loss.backward();
  update();
  ++steps_done_;
  return value;
}

void Trainer::update() {
  const c10::AutoGradMode no_gradients(false);
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : parameters_) gradients.push_back(parameter.grad());
  step_counts_.front().fill_(static_cast<double>(steps_done_ + 1));  // all are the same tensor
  at::_fused_adamw_(parameters_, gradients, mean_, square_, no_maxima_, step_counts_,
                    learning_rate(plan_, steps_done_), kBeta1, kBeta2, kWeightDecay, kEpsilon,
                    /*amsgrad=*/false, /*maximize=*/false);
  for (const at::Tensor& parameter : parameters_) parameter.mutable_grad().reset();
}

std::vector<Roformer::NamedTensor> Trainer::state() const {
  std::vector<Roformer::NamedTensor> state;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const std::string& name = model_.parameters()[i].first;
    state.emplace_back("model." + name, parameters_[i].detach());
    state.emplace_back("adamw.mean." + name, mean_[i]);
    state.emplace_back("adamw.square." + name, square_[i]);
  }
  return state;
}

void Trainer::restore(const std::vector<Roformer::NamedTensor>& saved, std::int64_t steps_done) {
  const c10::AutoGradMode no_gradients(false);
  for (const auto& [name, tensor] : state()) {
    tensor.copy_(std::ranges::find(saved, name, &Roformer::NamedTensor::first)->second);
  }
  steps_done_ = steps_done;
}

}  // namespace isentrope::lab
