#pragma once

#include <vector>

#include "tests/support/lab_text.h"
#include "tools/lab/tokenizer.h"
#include "tools/lab/trainer.h"

namespace isentrope::lab {

inline const ModelConfig kTiny{
    .vocabulary = 257, .layers = 2, .width = 16, .heads = 2, .train_length = 16};
inline const TrainingPlan kPlan{
    .steps = 60, .warm_up = 12, .batch = 8, .length = 16, .learning_rate = 1e-2, .seed = 1};

inline std::vector<Token> text_tokens() { return byte_tokenizer()->encode(make_text(5000)); }

}  // namespace isentrope::lab
