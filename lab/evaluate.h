// Evaluation: how well a model predicts masked tokens of the held-out text at one length, and how
// its attention rows look there.
#pragma once

#include <cstdint>
#include <span>

#include "lab/corpus.h"
#include "lab/masking.h"
#include "lab/roformer.h"

namespace isentrope::lab {

// The held-out text cut into windows of one length, side by side, and masked.
struct EvaluationSet {
  std::int64_t length = 0;
  std::int64_t windows = 0;
  MaskedTokens tokens;
};

// Reads as many windows as fit into the first kEvaluationTokens of the text, at least one. A token
// is masked or not whatever the length: all lengths predict the same tokens.
inline constexpr std::int64_t kEvaluationTokens = 131072;
[[nodiscard]] EvaluationSet draw_evaluation_set(std::span<const Token> held_out,
                                                std::int64_t length, Token mask_token,
                                                std::uint64_t seed);

struct Evaluation {
  std::int64_t tokens = 0;       // read
  std::int64_t predictions = 0;  // masked tokens
  double accuracy = 0;           // of the predictions, percent
  double cross_entropy = 0;      // mean -ln p of the right token, nats
  double entropy = 0;            // mean over all layers' rows, nats
  double gradient_mass = 0;      // mean of lambda (1 - collision) over the same rows
};

// Throws Interrupted (interrupt.h).
[[nodiscard]] Evaluation evaluate(const Roformer& model, const EvaluationSet& set);

}  // namespace isentrope::lab
