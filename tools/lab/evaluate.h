// Evaluation: a model's predictions on held-out text of one length, and its rows' statistics.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tools/lab/corpus.h"
#include "tools/lab/examples.h"
#include "tools/lab/transformer.h"

namespace isentrope::lab {

// A text cut into contiguous windows of one length.
struct EvaluationSet {
  std::int64_t length = 0;
  std::int64_t windows = 0;
  Examples tokens;
};

// Cuts as many windows as fit into the first `most` tokens, at least one. Masks ignore a training's
// seed: all models, and all lengths that divide the text equally, predict the same tokens.
[[nodiscard]] EvaluationSet draw_evaluation_set(std::span<const Token> text, std::int64_t length,
                                                std::int64_t most, const ModelConfig& model);

// Number of blocks of the text, or of windows if there are fewer. At every length that divides the
// text equally, blocks hold the same text. Their differences show the variation over texts.
inline constexpr std::int64_t kBlocks = 64;

// Sums over the predictions of each block, in text order.
struct BlockSums {
  std::vector<std::int64_t> predictions, right;
  std::vector<double> loss;  // -ln p of the correct token, nats
};

struct Evaluation {
  std::int64_t tokens = 0;  // number read
  std::int64_t predictions = 0;
  double accuracy = 0;       // of the predictions, percent
  double cross_entropy = 0;  // mean -ln p of the correct token, nats
  // Means over the rows of all layers and heads.
  double entropy = 0;        // nats
  double gradient_mass = 0;  // lambda (1 - collision)
  double distance = 0;       // from a row's own position to its keys, weighted, in keys
  double share_beyond = 0;   // weight on keys at the training length or farther, percent
  // Cross-entropy of predictions from more than 2^(i - 1) and up to 2^i tokens: causal models only.
  std::vector<double> by_position;
  BlockSums blocks;
};

// Evaluates the model on the set. Throws Interrupted (interrupt.h).
[[nodiscard]] Evaluation evaluate(const Transformer& model, const EvaluationSet& set,
                                  const Look& look = {});

}  // namespace isentrope::lab
