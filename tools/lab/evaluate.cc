#include "tools/lab/evaluate.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <bit>

#include "tools/lab/interrupt.h"

namespace isentrope::lab {
namespace {

constexpr std::int64_t kTokensAtOnce = 4096;            // limits the memory of a forward pass
constexpr std::uint64_t kMaskSeed = ~std::uint64_t{0};  // not a seed of any training

double total(const at::Tensor& x) { return x.sum(at::kDouble).item<double>(); }

// Returns the weight on keys at the training length or farther, summed over a layer's rows. A
// second call, with the same lambdas and far keys hidden, gives the near keys' share.
double weight_beyond(const ModelConfig& config, const LayerAttention& layer) {
  const std::int64_t length = layer.q.size(2), reach = config.train_length - 1;
  TorchOptions options = layer.options;
  options.window_left = options.window_right = reach;
  options.lambda = layer.result.lambda;
  if (options.bias.defined() && !layer.options.lambda.defined()) {
    options.bias = options.bias *
                   row_numbers(config, layer.rule, &ScaleRule::on_bias, length, -1).unsqueeze(-1);
  }
  const at::Tensor lse =
      torch_attention(layer.q, layer.k, layer.v, ScaleRule::standard(), options).lse;
  return total(-at::expm1(at::clamp_max(lse - layer.result.lse, 0)));
}

// Sums over the predictions and attention rows so far.
class Tally {
 public:
  explicit Tally(const Transformer& model, const EvaluationSet& set, const Look& look)
      : config_(model.config()), length_(set.length), windows_(set.windows) {
    const auto blocks = static_cast<std::size_t>(std::min(kBlocks, windows_));
    blocks_ = {std::vector<std::int64_t>(blocks), std::vector<std::int64_t>(blocks),
               std::vector<double>(blocks)};
    far_ = look.window < 0 && length_ > config_.train_length;
    if (config_.objective == Objective::causal) {
      const auto bands = std::bit_width(static_cast<std::uint64_t>(length_ - 1)) + 1;
      band_sum_.resize(static_cast<std::size_t>(bands));
      band_size_.resize(static_cast<std::size_t>(bands));
    }
  }

  void add_rows(const LayerAttention& layer) {
    const TorchAttention& rows = layer.result;
    rows_ += rows.entropy.numel();
    entropy_ += total(rows.entropy);
    gradient_mass_ += total(rows.lambda * (1 - rows.collision));
    distance_ += total(rows.distance);
    if (far_) beyond_ += weight_beyond(config_, layer);
  }

  void add_predictions(const at::Tensor& logits, const at::Tensor& targets,
                       at::ArrayRef<std::int64_t> positions) {
    predictions_ += targets.size(0);
    const at::Tensor hits = logits.argmax(-1).eq(targets);
    right_ += hits.sum().item<std::int64_t>();
    const at::Tensor losses =
        at::cross_entropy_loss(logits, targets, {}, at::Reduction::None).to(at::kDouble);
    cross_entropy_ += total(losses);
    const auto loss = losses.accessor<double, 1>();
    const auto hit = hits.accessor<bool, 1>();
    for (std::size_t i = 0; i < positions.size(); ++i) {
      const auto at = static_cast<std::int64_t>(i);
      const auto block = block_of(positions[i]);
      ++blocks_.predictions[block];
      blocks_.right[block] += hit[at] ? 1 : 0;
      blocks_.loss[block] += loss[at];
    }
    if (band_sum_.empty()) return;
    for (std::size_t i = 0; i < positions.size(); ++i) {
      const auto band = static_cast<std::size_t>(
          std::bit_width(static_cast<std::uint64_t>(positions[i] % length_)));
      band_sum_[band] += loss[static_cast<std::int64_t>(i)];
      ++band_size_[band];
    }
  }

  [[nodiscard]] Evaluation result(std::int64_t tokens) const {
    const auto predictions = static_cast<double>(predictions_);
    const auto rows = static_cast<double>(rows_);
    Evaluation result{.tokens = tokens,
                      .predictions = predictions_,
                      .accuracy = 100 * static_cast<double>(right_) / predictions,
                      .cross_entropy = cross_entropy_ / predictions,
                      .entropy = entropy_ / rows,
                      .gradient_mass = gradient_mass_ / rows,
                      .distance = distance_ / rows,
                      .share_beyond = 100 * beyond_ / rows,
                      .by_position = {},
                      .blocks = blocks_};
    for (std::size_t i = 0; i < band_sum_.size(); ++i)
      result.by_position.push_back(band_sum_[i] / static_cast<double>(band_size_[i]));
    return result;
  }

 private:
  [[nodiscard]] std::size_t block_of(std::int64_t position) const {
    const auto blocks = static_cast<std::int64_t>(blocks_.predictions.size());
    return static_cast<std::size_t>(position / length_ * blocks / windows_);
  }

  const ModelConfig& config_;
  std::int64_t length_, windows_;
  bool far_ = false;  // whether rows may see keys farther than in training
  std::int64_t predictions_ = 0, right_ = 0, rows_ = 0;
  double cross_entropy_ = 0, entropy_ = 0, gradient_mass_ = 0, distance_ = 0, beyond_ = 0;
  std::vector<double> band_sum_;  // of the cross-entropy; band i: 2^(i - 1) < n <= 2^i
  std::vector<std::int64_t> band_size_;
  BlockSums blocks_;
};

}  // namespace

EvaluationSet draw_evaluation_set(std::span<const Token> text, std::int64_t length,
                                  std::int64_t most, const ModelConfig& model) {
  const std::int64_t targets_ahead = window_tokens(model.objective, 0);
  const auto available = std::min(static_cast<std::int64_t>(text.size()) - targets_ahead, most);
  const std::int64_t windows = std::max<std::int64_t>(available / length, 1);
  const auto tokens = text.first(static_cast<std::size_t>(windows * length + targets_ahead));
  if (model.objective == Objective::causal) return {length, windows, next_tokens(tokens)};
  return {length, windows,
          mask_tokens(tokens, static_cast<Token>(model.vocabulary - 1), kMaskSeed)};
}

Evaluation evaluate(const Transformer& model, const EvaluationSet& set, const Look& look) {
  const c10::AutoGradMode no_gradients(false);
  const at::Tensor inputs = at::tensor(set.tokens.inputs).view({set.windows, set.length});
  const at::Tensor targets = at::tensor(set.tokens.targets);
  const std::vector<std::int64_t>& positions = set.tokens.positions;
  const std::int64_t at_once = std::max<std::int64_t>(kTokensAtOnce / set.length, 1);

  Tally tally(model, set, look);
  Look observed = look;
  observed.observer = [&](const LayerAttention& layer) { tally.add_rows(layer); };
  std::int64_t predicted = 0;
  for (std::int64_t first = 0; first < set.windows; first += at_once) {
    throw_if_interrupted();
    const std::int64_t last = std::min(first + at_once, set.windows);
    const auto end = std::ranges::lower_bound(positions, last * set.length) - positions.begin();
    const auto here = at::ArrayRef(positions).slice(static_cast<std::size_t>(predicted),
                                                    static_cast<std::size_t>(end - predicted));
    const at::Tensor logits = model.forward(inputs.slice(0, first, last),
                                            at::tensor(here) - first * set.length, observed);
    tally.add_predictions(logits, targets.slice(0, predicted, end), here);
    predicted = end;
  }
  return tally.result(set.windows * set.length);
}

}  // namespace isentrope::lab
