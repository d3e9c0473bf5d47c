// What an experiment is asked for. Nothing here needs libtorch: options are read without it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "lab/corpus.h"
#include "lab/model_config.h"
#include "lab/model_rule.h"
#include "lab/run_folder.h"

namespace isentrope::lab {

enum class Part { validation, test };

struct ExperimentOptions {
  std::vector<ModelRule> rules = default_rules();
  std::vector<ScaleRule> rescaled;  // laid upon the model of `standard`
  bool probes = false;  // every model is asked what is length and what is far (measure.h)

  ModelConfig model{.vocabulary = 0,
                    .layers = 4,
                    .width = 128,
                    .heads = 2};  // vocabulary, train_length: set later
  std::vector<std::string> corpus{kKingJames};
  std::string tokenizer;        // a SentencePiece file; bytes when empty
  std::int64_t vocabulary = 0;  // pieces of a SentencePiece model to train on the corpus; 0: none

  double test_share = kTestShare;  // of the text, its end
  std::int64_t train_length = 64;
  std::vector<std::int64_t> lengths{64, 128, 256, 512, 1024};  // rising
  Part part = Part::validation;
  std::int64_t evaluation_tokens = 65536;  // of each length, at most

  std::int64_t steps = 500;
  std::int64_t batch = 64;
  double learning_rate = 1e-3;
  double bias_learning_rate = 1;  // of learned position biases, over that
  std::uint64_t seed = 1;         // of the first run; the others follow it
  std::int64_t seeds = 1;

  std::int64_t threads = 1;
  std::filesystem::path output = "results/extrapolate";
  RunFolder::Existing existing = RunFolder::Existing::refuse;
  std::string command;  // what was typed, without --resume and --overwrite; told in result.json

  // Steps in which the learning rate rises: 100, less in a short run.
  [[nodiscard]] std::int64_t warm_up() const { return steps < 500 ? steps / 5 : 100; }
};

}  // namespace isentrope::lab
