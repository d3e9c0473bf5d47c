#include "lab/evaluate.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>

#include "lab/interrupt.h"

namespace isentrope::lab {
namespace {

constexpr std::int64_t kTokensAtOnce = 4096;  // bounds the memory of a forward pass

// Sums over the predictions and attention rows seen so far.
class Tally {
 public:
  void add_rows(const TorchAttention& rows) {
    rows_ += rows.entropy.numel();
    entropy_ += sum(rows.entropy);
    gradient_mass_ += sum(rows.lambda * (1 - rows.collision));
  }

  void add_predictions(const at::Tensor& logits, const at::Tensor& targets) {
    predictions_ += targets.size(0);
    right_ += logits.argmax(-1).eq(targets).sum().item<std::int64_t>();
    cross_entropy_ +=
        at::cross_entropy_loss(logits, targets, {}, at::Reduction::Sum).item<double>();
  }

  [[nodiscard]] Evaluation result(std::int64_t tokens) const {
    const auto predictions = static_cast<double>(predictions_);
    const auto rows = static_cast<double>(rows_);
    return {tokens,
            predictions_,
            100 * static_cast<double>(right_) / predictions,
            cross_entropy_ / predictions,
            entropy_ / rows,
            gradient_mass_ / rows};
  }

 private:
  static double sum(const at::Tensor& x) { return x.sum(at::kDouble).item<double>(); }

  std::int64_t predictions_ = 0, right_ = 0, rows_ = 0;
  double cross_entropy_ = 0, entropy_ = 0, gradient_mass_ = 0;
};

}  // namespace

EvaluationSet draw_evaluation_set(std::span<const Token> held_out, std::int64_t length,
                                  Token mask_token, std::uint64_t seed) {
  const auto available = std::min(static_cast<std::int64_t>(held_out.size()), kEvaluationTokens);
  const std::int64_t windows = std::max<std::int64_t>(available / length, 1);
  const auto tokens = held_out.first(static_cast<std::size_t>(windows * length));
  // A seed of its own: training draws the counters of `seed`.
  return {length, windows, mask_tokens(tokens, mask_token, ~seed)};
}

Evaluation evaluate(const Roformer& model, const EvaluationSet& set) {
  const c10::AutoGradMode no_gradients(false);
  const at::Tensor inputs = at::tensor(set.tokens.inputs).view({set.windows, set.length});
  const at::Tensor targets = at::tensor(set.tokens.targets);
  const std::vector<std::int64_t>& positions = set.tokens.positions;
  const std::int64_t at_once = std::max<std::int64_t>(kTokensAtOnce / set.length, 1);

  Tally tally;
  std::int64_t predicted = 0;
  for (std::int64_t first = 0; first < set.windows; first += at_once) {
    throw_if_interrupted();
    const std::int64_t last = std::min(first + at_once, set.windows);
    const auto end = std::ranges::lower_bound(positions, last * set.length) - positions.begin();
    const at::Tensor masked = at::tensor(at::ArrayRef(positions).slice(predicted, end - predicted));
    const at::Tensor logits =
        model.forward(inputs.slice(0, first, last), masked - first * set.length,
                      [&](const TorchAttention& rows) { tally.add_rows(rows); });
    tally.add_predictions(logits, targets.slice(0, predicted, end));
    predicted = end;
  }
  return tally.result(set.windows * set.length);
}

}  // namespace isentrope::lab
