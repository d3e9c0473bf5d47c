// Trainer: AdamW steps of a model on windows of a corpus.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "tools/lab/corpus.h"
#include "tools/lab/examples.h"
#include "tools/lab/transformer.h"

namespace isentrope::lab {

struct TrainingPlan {
  std::int64_t steps = 0;
  std::int64_t warm_up = 0;  // steps
  std::int64_t batch = 0;    // windows per step
  std::int64_t length = 0;   // tokens per window
  double learning_rate = 0;
  std::uint64_t seed = 0;
  double bias_learning_rate = 1;  // of learned position biases, relative to the rest
};

// Returns the learning rate: increases linearly to plan.learning_rate at step warm_up, then
// decreases linearly to 0 at step plan.steps. The first step is step 0.
[[nodiscard]] double learning_rate(const TrainingPlan& plan, std::int64_t step);

// Returns the windows of a step and their masks, a function of seed and step that is the same for
// every rule. The mask token is the last of the vocabulary.
[[nodiscard]] Examples draw_batch(const TrainingPlan& plan, std::int64_t step,
                                  std::span<const Token> corpus, const ModelConfig& model);

// The loss of a step was non-finite; the weights are those before it.
class Divergence : public std::runtime_error {
 public:
  Divergence(std::int64_t step, double loss);
};

class Trainer {
 public:
  // The model and the corpus must outlive the trainer.
  Trainer(const TrainingPlan& plan, Transformer& model, std::span<const Token> corpus);

  // Takes one step and returns its loss in nats. Throws Divergence.
  double step();

  [[nodiscard]] std::int64_t steps_done() const { return steps_done_; }
  [[nodiscard]] bool finished() const { return steps_done_ == plan_.steps; }

  // Returns weights and AdamW's moments by name: all that changes from step to step.
  [[nodiscard]] std::vector<Transformer::NamedTensor> state() const;
  // Continues from a state() taken after that many steps of the same plan and shape.
  void restore(const std::vector<Transformer::NamedTensor>& state, std::int64_t steps_done);

 private:
  // Parameters with the same decay, and their AdamW moments.
  struct Group {
    double decay = 0;
    double learning_rate = 1;  // relative to the plan's
    std::vector<std::string> names;
    std::vector<at::Tensor> parameters, mean, square, step_counts;
  };

  void update();

  TrainingPlan plan_;
  Transformer& model_;
  std::span<const Token> corpus_;
  std::int64_t steps_done_ = 0;
  std::array<Group, 3> groups_;  // matrices; biases, norms and factors; learned position biases
};

}  // namespace isentrope::lab
