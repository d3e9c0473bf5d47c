// The laboratory detects planted effects: models made by hand, in which a sharper softmax takes
// weight from uninformative keys, from none, or from informative keys.

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tools/analysis/differences.h"
#include "tools/analysis/records.h"
#include "tools/lab/measure.h"
#include "tools/lab/random.h"

namespace isentrope::lab {
namespace {

using nlohmann::json;

constexpr std::int64_t kTrained = 16, kLong = 256, kWidth = 16;
constexpr std::int64_t kLetters = 8;
constexpr std::uint64_t kRun = 40;

// Returns runs of one letter, so that near tokens determine a masked one and far ones do not. A
// share of the tokens is random.
std::vector<Token> runs_of_letters(std::uint64_t seed, double noise) {
  const auto letter = [&](std::uint64_t counter) {
    return static_cast<Token>(random_below(random_bits(seed, Stream::token, counter), kLetters));
  };
  std::vector<Token> tokens;
  for (std::uint64_t i = 0; i < 60 * kRun; ++i) {
    const bool other = random_unit(random_bits(seed, Stream::replace, i)) < noise;
    tokens.push_back(other ? letter(1000 + i) : letter(i / kRun));
  }
  return tokens;
}

// Bias of a model on keys at the training length or farther, and on the previous token.
struct Planted {
  double far = 0, before = 0;
  double noise = 0;  // of the text
};

// Returns a model that predicts the letter with the most weight.
Transformer planted_model(const Planted& planted) {
  const c10::AutoGradMode no_gradients(false);
  ModelConfig config{.vocabulary = kLetters + 1, .layers = 1, .width = kWidth, .heads = 1};
  config.shape = ModelShape::modern;
  config.positions = Positions::t5;
  config.embedding_norm = false;
  config.train_length = kTrained;
  Transformer model(config, {}, 1);
  for (const auto& [name, value] : model.parameters()) {
    if (name.find("norm") == std::string::npos) value.zero_();
    if (name == "embedding") {  // a direction for each letter, 0 for the mask
      for (std::int64_t letter = 0; letter < kLetters; ++letter) value[letter][letter] = 1;
    } else if (name == "positions") {  // T5's last buckets, and its second
      value.select(1, 15).fill_(planted.far);
      value.select(1, 31).fill_(planted.far);
      value.select(1, 1).fill_(planted.before);
    } else if (name == "layers.0.qkv.weight") {  // scores are 0, values are unchanged
      value.narrow(0, 2 * kWidth, kWidth).copy_(at::eye(kWidth));
    } else if (name == "layers.0.out.weight") {  // attention outweighs the token's own embedding
      value.copy_(100 * at::eye(kWidth));
    }
  }
  return model;
}

struct Found {
  json lead;  // accuracy of the rescaled model at the long length
  double best_gain = 0;
};

Found found_of(const Planted& planted) {
  const Transformer model = planted_model(planted);
  std::vector<json> records;
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    const std::vector<Token> text = runs_of_letters(seed, planted.noise);
    const MeasurePlan plan{
        .lengths = {kTrained, kLong},
        .text = text,
        .validation = text,
        .tokens = 4096,
        .rescaled = {ScaleRule::entropy_invariant(kTrained).with_scaled_bias(true)}};
    json record = measure_model(model, {}, plan, [](const std::string&) {});
    record["seed"] = seed;
    record["parameters"] = 0;
    record["seconds_per_step"] = 0;
    record["evaluation"] = {{"lengths", plan.lengths}, {"bytes_per_token", 1}};
    record["configuration"] = {{"width", model.config().width}, {"heads", model.config().heads}};
    records.push_back(record);
  }
  Found found;
  for (const json& lead : analysis::leads_json(analysis::exploratory_leads(records))) {
    if (lead["kind"] == "rescaled" && lead["metric"] == "accuracy" && lead["length"] == kLong)
      found.lead = lead;
  }
  const json curve = analysis::gains_json(records);
  const std::vector<double> accuracy = curve["accuracy"][std::to_string(kLong)];
  found.best_gain =
      curve["gain"]
           [static_cast<std::size_t>(std::ranges::max_element(accuracy) - accuracy.begin())];
  return found;
}

TEST(PlantedEffect, FarKeysThatScoreLowerMakeTheRuleHelp) {
  const Found found = found_of({.far = -1});
  EXPECT_EQ(found.lead["verdict"], "helps") << found.lead;
  EXPECT_GT(found.best_gain, 1);
}

TEST(PlantedEffect, FarKeysThatScoreAlikeLeaveItUndecided) {
  const Found found = found_of({});
  EXPECT_EQ(found.lead["verdict"], "undecided") << found.lead;
  EXPECT_EQ(found.lead["mean"], 0);
}

// The near keys together are more informative than the one that a sharper softmax leaves.
TEST(PlantedEffect, WeightTakenFromKeysThatTellMakesItHurt) {
  const Found found = found_of({.far = -20, .before = 2.5, .noise = 0.4});
  EXPECT_EQ(found.lead["verdict"], "hurts") << found.lead;
  EXPECT_LE(found.best_gain, 1);
}

}  // namespace
}  // namespace isentrope::lab
