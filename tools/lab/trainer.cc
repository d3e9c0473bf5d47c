#include "tools/lab/trainer.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tools/lab/random.h"

namespace isentrope::lab {
namespace {

constexpr double kBeta1 = 0.9;
constexpr double kBeta2 = 0.999;
constexpr double kEpsilon = 1e-8;
constexpr double kWeightDecay = 0.01;

// Concatenates the windows of a batch.
void append(Examples& batch, const Examples& window) {
  const auto inputs = static_cast<std::int64_t>(batch.inputs.size());
  batch.inputs.insert(batch.inputs.end(), window.inputs.begin(), window.inputs.end());
  batch.targets.insert(batch.targets.end(), window.targets.begin(), window.targets.end());
  for (const std::int64_t position : window.positions) batch.positions.push_back(inputs + position);
}

}  // namespace

double learning_rate(const TrainingPlan& plan, std::int64_t step) {
  const double rising = static_cast<double>(step + 1) / static_cast<double>(plan.warm_up);
  const double falling =
      static_cast<double>(plan.steps - step) / static_cast<double>(plan.steps - plan.warm_up);
  return plan.learning_rate * (step < plan.warm_up ? rising : falling);
}

Examples draw_batch(const TrainingPlan& plan, std::int64_t step, std::span<const Token> corpus,
                    const ModelConfig& model) {
  const std::int64_t taken = window_tokens(model.objective, plan.length);
  const auto starts = static_cast<std::int64_t>(corpus.size()) - taken + 1;
  std::vector<Token> tokens;
  tokens.reserve(static_cast<std::size_t>(plan.batch * plan.length));
  Examples next;
  for (std::int64_t i = 0; i < plan.batch; ++i) {
    const auto window = static_cast<std::uint64_t>(step * plan.batch + i);
    const std::int64_t start = random_below(random_bits(plan.seed, Stream::window, window), starts);
    const auto chosen =
        corpus.subspan(static_cast<std::size_t>(start), static_cast<std::size_t>(taken));
    if (model.objective == Objective::causal) {
      append(next, next_tokens(chosen));
    } else {
      tokens.insert(tokens.end(), chosen.begin(), chosen.end());
    }
  }
  if (model.objective == Objective::causal) return next;
  return mask_tokens(tokens, static_cast<Token>(model.vocabulary - 1), plan.seed,
                     static_cast<std::uint64_t>(step) * tokens.size());
}

Divergence::Divergence(std::int64_t step, double loss)
    : std::runtime_error(
          fmt::format("the loss of step {} is {}; a lower learning rate may help", step, loss)) {}

Trainer::Trainer(const TrainingPlan& plan, Transformer& model, std::span<const Token> corpus)
    : plan_(plan), model_(model), corpus_(corpus) {
  auto& [matrices, vectors, positions] = groups_;
  matrices.decay = kWeightDecay;
  // The optimizer multiplies decay by the learning rate of the group. The division keeps the decay
  // of all groups the same.
  positions.learning_rate = plan.bias_learning_rate;
  positions.decay = kWeightDecay / plan.bias_learning_rate;
  const at::Tensor step_count = at::zeros({});
  for (const auto& [name, parameter] : model.parameters()) {
    Group& alike = name == kPositionBias ? positions : parameter.dim() > 1 ? matrices : vectors;
    alike.names.push_back(name);
    alike.parameters.push_back(parameter);
    alike.mean.push_back(at::zeros_like(parameter));
    alike.square.push_back(at::zeros_like(parameter));
    alike.step_counts.push_back(step_count);
  }
}

double Trainer::step() {
  Examples batch = draw_batch(plan_, steps_done_, corpus_, model_.config());
  const auto predicted = static_cast<std::int64_t>(batch.positions.size());
  const at::Tensor tokens =
      at::from_blob(batch.inputs.data(), {plan_.batch, plan_.length}, at::kLong);
  const at::Tensor positions = at::from_blob(batch.positions.data(), {predicted}, at::kLong);
  const at::Tensor targets = at::from_blob(batch.targets.data(), {predicted}, at::kLong);
  const auto step = static_cast<std::uint64_t>(steps_done_);
  const Look look{
      .dropout = at::detail::createCPUGenerator(random_bits(plan_.seed, Stream::dropout, step))};

  const at::Tensor loss = at::cross_entropy_loss(model_.forward(tokens, positions, look), targets);
  const auto value = loss.item<double>();
  if (!std::isfinite(value)) throw Divergence(steps_done_ + 1, value);
  loss.backward();
  update();
  ++steps_done_;
  return value;
}

void Trainer::update() {
  const c10::AutoGradMode no_gradients(false);
  // All step counts are the same tensor.
  groups_.front().step_counts.front().fill_(static_cast<double>(steps_done_ + 1));
  for (Group& group : groups_) {
    if (group.parameters.empty()) continue;
    std::vector<at::Tensor> gradients;
    for (const at::Tensor& parameter : group.parameters) gradients.push_back(parameter.grad());
    at::_fused_adamw_(group.parameters, gradients, group.mean, group.square, {}, group.step_counts,
                      group.learning_rate * learning_rate(plan_, steps_done_), kBeta1, kBeta2,
                      group.decay, kEpsilon,
                      /*amsgrad=*/false, /*maximize=*/false);
    for (const at::Tensor& parameter : group.parameters) parameter.mutable_grad().reset();
  }
}

std::vector<Transformer::NamedTensor> Trainer::state() const {
  std::vector<Transformer::NamedTensor> state;
  for (const Group& group : groups_) {
    for (std::size_t i = 0; i < group.parameters.size(); ++i) {
      state.emplace_back("model." + group.names[i], group.parameters[i].detach());
      state.emplace_back("adamw.mean." + group.names[i], group.mean[i]);
      state.emplace_back("adamw.square." + group.names[i], group.square[i]);
    }
  }
  return state;
}

void Trainer::restore(const std::vector<Transformer::NamedTensor>& saved, std::int64_t steps_done) {
  const c10::AutoGradMode no_gradients(false);
  for (const auto& [name, tensor] : state()) {
    tensor.copy_(std::ranges::find(saved, name, &Transformer::NamedTensor::first)->second);
  }
  steps_done_ = steps_done;
}

}  // namespace isentrope::lab
