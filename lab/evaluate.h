// Evaluation: how well a model predicts tokens of a text it never saw at one length, and how its
// attention rows look there.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lab/corpus.h"
#include "lab/examples.h"
#include "lab/transformer.h"

namespace isentrope::lab {

// A text cut into windows of one length, side by side.
struct EvaluationSet {
  std::int64_t length = 0;
  std::int64_t windows = 0;
  Examples tokens;
};

// Reads as many windows as fit into the first `most` tokens of the text, at least one. What is to
// be predicted is the same for every model, and for every length that divides the text alike: the
// masks depend on no seed of a training.
[[nodiscard]] EvaluationSet draw_evaluation_set(std::span<const Token> text, std::int64_t length,
                                                std::int64_t most, const ModelConfig& model);

// The text in so many pieces, or as many as there are windows: of windows side by side, the same
// text at every length that divides it alike. What is not the same for every text shows between
// them.
inline constexpr std::int64_t kBlocks = 64;

// Sums over the predictions of each block, in the order of the text.
struct BlockSums {
  std::vector<std::int64_t> predictions, right;
  std::vector<double> loss;  // -ln p of the right token, nats
};

struct Evaluation {
  std::int64_t tokens = 0;  // read
  std::int64_t predictions = 0;
  double accuracy = 0;       // of the predictions, percent
  double cross_entropy = 0;  // mean -ln p of the right token, nats
  // Means over the rows of all layers and heads.
  double entropy = 0;        // nats
  double gradient_mass = 0;  // lambda (1 - collision)
  double distance = 0;       // from a row's own position to the keys it attends to, in keys
  double share_beyond = 0;   // weight on keys at the training length or farther, percent
  // Cross-entropy of the predictions from up to 2^i tokens, more than 2^(i - 1): causal models
  // only.
  std::vector<double> by_position;
  BlockSums blocks;
};

// Throws Interrupted (interrupt.h).
[[nodiscard]] Evaluation evaluate(const Transformer& model, const EvaluationSet& set,
                                  const Look& look = {});

}  // namespace isentrope::lab
