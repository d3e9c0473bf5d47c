// The experiment of length extrapolation: models that differ in their scale rule alone are trained
// at one length and evaluated at others. Where two rules agree at that length training makes the
// same model, and makes it once.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "isentrope/scale_rule.h"
#include "lab/corpus.h"
#include "lab/progress.h"

namespace isentrope::lab {

// The standard scale, and the entropy-invariant one that equals it at the training length, as its
// authors chose theirs: what differs at other lengths is then the rule's doing alone.
[[nodiscard]] std::vector<ScaleRule> default_rules(std::int64_t train_length);

struct ExperimentOptions {
  std::vector<ScaleRule> rules = default_rules(64);
  std::vector<std::string> corpus{kKingJames};
  std::string tokenizer;        // a SentencePiece file; bytes when empty
  std::int64_t vocabulary = 0;  // pieces of a SentencePiece model to train on the corpus; 0: none

  std::int64_t train_length = 64;
  std::vector<std::int64_t> lengths{64, 128, 256, 512, 1024};  // rising

  std::int64_t steps = 500;
  std::int64_t layers = 4;
  std::int64_t width = 128;
  std::int64_t heads = 2;
  std::int64_t batch = 64;
  double learning_rate = 1e-3;
  std::uint64_t seed = 1;  // of the first run; the others follow it
  std::int64_t seeds = 1;

  std::int64_t threads = 0;  // 0: all cores
  std::filesystem::path output = "results/extrapolate";
  bool resume = false;
  std::string command;  // what was typed, without --resume; told in result.json

  // Steps in which the learning rate rises: 100, less in a short run.
  [[nodiscard]] std::int64_t warm_up() const { return steps < 500 ? steps / 5 : 100; }
};

// Runs what of the experiment is not done yet, and writes result.json and report.html; returns what
// result.json holds. Throws Error on bad input before anything is written, Divergence, and
// Interrupted after saving.
nlohmann::json run_experiment(const ExperimentOptions& options, Progress& progress);

}  // namespace isentrope::lab
