// Options of an experiment. This header does not need libtorch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "tools/lab/corpus.h"
#include "tools/lab/model_config.h"
#include "tools/lab/model_rule.h"
#include "tools/lab/run_folder.h"

namespace isentrope::lab {

enum class Part { validation, test };

struct ExperimentOptions {
  std::vector<ModelRule> rules = default_rules();
  std::vector<ScaleRule> rescaled;  // applied to the model of `standard`
  bool probes = false;              // whether models are measured with the probes of measure.h

  ModelConfig model{.vocabulary = 0,
                    .layers = 4,
                    .width = 128,
                    .heads = 2};  // vocabulary, train_length: set later
  std::vector<std::string> corpus{kKingJames};
  std::string tokenizer;        // a SentencePiece file; empty: bytes
  std::int64_t vocabulary = 0;  // pieces of a SentencePiece model to train on the corpus; 0: none

  double test_share = kTestShare;  // fraction at the end of the text
  std::int64_t train_length = 64;
  std::vector<std::int64_t> lengths{64, 128, 256, 512, 1024};  // increasing
  Part part = Part::validation;
  std::int64_t evaluation_tokens = 65536;  // at each length, at most

  std::int64_t steps = 500;
  std::int64_t batch = 64;
  double learning_rate = 1e-3;
  double bias_learning_rate = 1;  // of learned position biases, relative to learning_rate
  std::uint64_t seed = 1;         // of the first run; later runs count up
  std::int64_t seeds = 1;

  std::int64_t threads = 1;
  std::filesystem::path output = "results/extrapolate";
  RunFolder::Existing existing = RunFolder::Existing::refuse;
  std::string command;  // typed arguments without --resume and --overwrite, recorded in result.json

  // Returns the steps of increasing learning rate: 100, fewer in a short run.
  [[nodiscard]] std::int64_t warm_up() const { return steps < 500 ? steps / 5 : 100; }
};

}  // namespace isentrope::lab
