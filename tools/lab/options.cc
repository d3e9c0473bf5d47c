#include "tools/lab/options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <limits>

#include "isentrope/error.h"
#include "src/rules/split.h"
#include "tools/command/arguments.h"
#include "tools/command/run.h"

namespace isentrope::lab {
namespace {

using command::number_below;
using command::positive_number;
using command::whole_number;

// Largest counts that options accept; larger ones are typing errors.
constexpr std::int64_t kMostSteps = 1'000'000'000, kMostTokens = 1'000'000'000;
constexpr std::int64_t kMostLayers = 1000, kMostWidth = 100'000, kMostHeads = 10'000;
constexpr std::int64_t kMostWindows = 1'000'000, kLongest = 10'000'000, kMostPieces = 1'000'000;
constexpr std::int64_t kFewestPieces = 260;  // 256 bytes, SentencePiece's three marks, and one more
constexpr std::int64_t kMostSeeds = 1000, kMostThreads = 1024;

// Sets the size of the original experiment, RoFormer-small. It needs a larger corpus, and a day.
void use_seed_preset(ExperimentOptions& options) {
  options.steps = 50000;
  options.model.layers = 6;
  options.model.width = 384;
  options.model.heads = 6;
  options.batch = 256;
  options.learning_rate = 5e-4;
}

// Applies a preset first, so that options override it wherever they are typed.
void use_preset(int argc, const char* const* argv, ExperimentOptions& options) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    const std::string_view next = i + 1 < argc ? argv[i + 1] : "";
    if (argument == "--preset=seed" || (argument == "--preset" && next == "seed"))
      use_seed_preset(options);
  }
}

// Arguments that must be parsed before they become options.
struct Typed {
  std::string rules, rescaled, preset = "demo", embedding_norm, part = "validation";
  bool resume = false, overwrite = false;
};

// Adds options that are alike.
struct Adder {
  CLI::App& app;

  void count(const char* name, std::int64_t& value, std::int64_t most, const char* help) const {
    app.add_option(name, value, help)->check(whole_number(1, most))->capture_default_str();
  }
  void rate(const char* name, double& value, const char* help) const {
    app.add_option(name, value, help)->check(positive_number())->capture_default_str();
  }
  void one_of(const char* name, std::string& value, std::vector<std::string> names,
              const char* help) const {
    auto* option = app.add_option(name, value, help)->check(CLI::IsMember(std::move(names)));
    if (!value.empty()) option->capture_default_str();
  }
  template <typename Choice>
  void choice(const char* name, Choice& value, const char* help) const {
    const auto set = [&value](const std::string& typed) {
      const std::vector<std::string> names = names_of<Choice>();
      value = static_cast<Choice>(std::ranges::find(names, typed) - names.begin());
    };
    app.add_option_function<std::string>(name, set, help)
        ->check(CLI::IsMember(names_of<Choice>()))
        ->default_str(name_of(value));
  }
};

void add_model_options(const Adder& add, ModelConfig& model, Typed& typed) {
  add.choice("--model", model.shape,
             "roformer: LayerNorm after each block, biases, GELU; modern: RMSNorm before, no "
             "biases, SwiGLU");
  add.choice("--init", model.init,
             "bert: normal, 0.02, biases 0; pytorch: uniform within 1/sqrt(inputs), biases too");
  add.choice("--positions", model.positions, "How positions are encoded");
  add.choice("--objective", model.objective,
             "Tokens to predict. mlm: masked tokens; causal: the next token");
  add.one_of("--embedding-norm", typed.embedding_norm, {"yes", "no"},
             "Whether there is a norm after the embedding (yes for roformer, no for modern)");
  add.app.add_option("--dropout", model.dropout, "Dropout after the embedding and each block")
      ->check(number_below(1))
      ->capture_default_str();
  add.count("--layers", model.layers, kMostLayers, "Layers of the model");
  add.count("--width", model.width, kMostWidth, "Width of the model");
  add.count("--heads", model.heads, kMostHeads, "Attention heads");
}

void add_text_options(const Adder& add, ExperimentOptions& o, Typed& typed) {
  CLI::App& app = add.app;
  app.add_option("--corpus", o.corpus, "Text files; their end is held out for validation and test")
      ->take_all()
      ->capture_default_str();
  auto* tokenizer = app.add_option("--tokenizer", o.tokenizer,
                                   "A SentencePiece model; without it tokens are bytes");
  app.add_option("--vocabulary", o.vocabulary,
                 "Train a SentencePiece model of this many pieces on the training part")
      ->check(whole_number(kFewestPieces, kMostPieces))
      ->excludes(tokenizer);
  add.count("--train-length", o.train_length, kLongest, "Tokens per training sequence");
  app.add_option("--lengths", o.lengths, "Lengths to evaluate at, separated by commas")
      ->take_all()
      ->delimiter(',')
      ->check(whole_number(1, kLongest))
      ->capture_default_str();
  app.add_option(
         "--test-share", o.test_share,
         "Share of the text, at its end, for the test; the twentieth before it is for validation")
      ->check(number_below(1 - kValidationShare))
      ->capture_default_str();
  add.one_of("--part", typed.part, {"validation", "test"},
             "Part of the text to evaluate on; choose on validation, test once");
  add.count("--evaluation-tokens", o.evaluation_tokens, kMostTokens,
            "Most tokens to read at each length");
}

void add_training_options(const Adder& add, ExperimentOptions& o) {
  add.count("--steps", o.steps, kMostSteps, "Training steps");
  add.count("--batch", o.batch, kMostWindows, "Sequences per training step");
  add.rate("--learning-rate", o.learning_rate, "Highest learning rate of AdamW");
  add.rate("--bias-learning-rate", o.bias_learning_rate,
           "Learning rate of learned position biases, relative to the rest");
  add.app.add_option("--seed", o.seed, "The first seed")
      ->check(whole_number(0, std::numeric_limits<std::int64_t>::max()))
      ->capture_default_str();
  add.count("--seeds", o.seeds, kMostSeeds, "Number of seeds for each rule; a verdict needs three");
  add.count("--threads", o.threads, kMostThreads,
            "Threads of a training; another number of them changes the last digits");
}

void add_options(CLI::App& app, CommandLine& line, Typed& typed) {
  ExperimentOptions& o = line.experiment;
  // If an option is repeated, the last one counts.
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.add_option("--rules", typed.rules,
                 "Scale rules, separated by commas, each for a model; all: every rule, with this\n"
                 "training length if it has one; learned(RULE): with a learned factor per head\n"
                 "(standard,entropy_invariant(base=512), with scale_bias=true for t5 and alibi)")
      ->type_name("RULES");
  app.add_option("--rescaled", typed.rescaled,
                 "Rules to apply to the model trained with standard, or none\n"
                 "(entropy_invariant(base=TRAIN_LENGTH), with scale_bias=true for t5 and alibi)")
      ->type_name("RULES");
  app.add_flag("--probes", o.probes,
               "Evaluate every model again with its scale frozen at the training length and\n"
               "growing with ln n, each with far keys seen and hidden");
  const Adder add{app};
  add.one_of("--preset", typed.preset, {"demo", "seed"},
             "demo; or seed, the size of the original experiment, RoFormer-small");
  add_model_options(add, o.model, typed);
  add_text_options(add, o, typed);
  add_training_options(add, o);
  app.add_option("--output", o.output, "Folder for result.json, report.html and the models")
      ->capture_default_str();
  auto* resume = app.add_flag("--resume", typed.resume, "Continue the run in the output folder");
  app.add_flag("--overwrite", typed.overwrite, "Replace the run in the output folder")
      ->excludes(resume);
  app.add_flag("--json", line.json, "Print result.json instead of the tables");
  app.add_flag("--quiet", line.quiet, "Do not show progress");
}

// Returns the command as typed, without --resume and --overwrite.
std::string command_of(int argc, const char* const* argv) {
  std::string command = "isentrope extrapolate";
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--resume" || argument == "--overwrite") continue;
    const bool plain = argument.find_first_not_of(
                           "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                           "-_=+,./:@%") == std::string_view::npos;
    command +=
        plain && !argument.empty() ? fmt::format(" {}", argument) : fmt::format(" '{}'", argument);
  }
  return command;
}

// Returns `rule` for a model with these positions, unless its text says otherwise.
ScaleRule for_positions(const ScaleRule& rule, Positions positions) {
  const bool biased = positions == Positions::t5 || positions == Positions::alibi;
  return biased ? rule.with_scaled_bias(true) : rule;
}

void settle_rules(ExperimentOptions& options, const Typed& typed) {
  const Positions positions = options.model.positions;
  const auto length = static_cast<double>(options.train_length);
  if (typed.rules == "all") {
    options.rules.clear();
    for (const ScaleRule& rule : ScaleRule::all(length)) options.rules.push_back({rule});
  } else if (!typed.rules.empty()) {
    options.rules = parse_rules(typed.rules);
  } else {
    for (ModelRule& rule : options.rules) {
      if (rule.rule != ScaleRule::standard()) rule.rule = for_positions(rule.rule, positions);
    }
  }
  if (typed.rescaled == "none") return;
  if (typed.rescaled.empty()) {
    if (length > 1)
      options.rescaled = {for_positions(ScaleRule::entropy_invariant(length), positions)};
    return;
  }
  for (const ModelRule& rule : parse_rules(typed.rescaled)) {
    if (rule.learned || rule.unit) {
      throw Error(fmt::format(
          "[rules] --rescaled must be scale rules, which change no model; got {}", rule.text()));
    }
    options.rescaled.push_back(rule.rule);
  }
}

void settle(ExperimentOptions& options, const Typed& typed) {
  ModelConfig& model = options.model;
  model.embedding_norm = typed.embedding_norm.empty() ? model.shape == ModelShape::roformer
                                                      : typed.embedding_norm == "yes";
  options.part = typed.part == "test" ? Part::test : Part::validation;
  if (typed.resume) options.existing = RunFolder::Existing::resume;
  if (typed.overwrite) options.existing = RunFolder::Existing::overwrite;
  std::ranges::sort(options.lengths);
  const auto repeated = std::ranges::unique(options.lengths);
  options.lengths.erase(repeated.begin(), repeated.end());
  settle_rules(options, typed);
  for (const ModelRule& rule : options.rules) {
    if (options.probes && (rule.learned || rule.rule.terms().size() > 1)) {
      throw Error(fmt::format(
          "[rules] --probes must be single rules without learned factors; got {}", rule.text()));
    }
  }
}

}  // namespace

std::vector<ModelRule> parse_rules(std::string_view text) {
  std::vector<ModelRule> rules;
  for (const std::string_view part : split_outside_brackets(text, ',')) {
    const ModelRule rule = ModelRule::parse(part);
    if (std::ranges::find(rules, rule) != rules.end()) {
      throw Error(fmt::format("[rules] every rule must be given once; got {} twice", rule.text()));
    }
    rules.push_back(rule);
  }
  return rules;
}

std::optional<CommandLine> parse_command_line(int argc, const char* const* argv) {
  CommandLine line;
  Typed typed;
  use_preset(argc, argv, line.experiment);
  CLI::App app(
      "Trains small language models that differ only in the scale rule of their attention, "
      "evaluates them at\n"
      "lengths they never saw, and says where a rule helps. Writes result.json and report.html.",
      "isentrope extrapolate");
  add_options(app, line, typed);
  bool parsed = false;
  app.callback([&] { parsed = true; });
  command::parse(app, argc, argv);
  if (!parsed) return {};
  line.experiment.command = command_of(argc, argv);
  settle(line.experiment, typed);
  return line;
}

}  // namespace isentrope::lab
