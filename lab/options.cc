#include "lab/options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>

#include "isentrope/error.h"

namespace isentrope::lab {
namespace {

constexpr std::int64_t kLargest = 1'000'000'000;  // of any count: beyond it, a typing error

template <typename Number>
std::optional<Number> number(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return {};
  return value;
}

CLI::Validator whole_number(std::int64_t least) {
  return {[least](const std::string& text) {
            const auto value = number<std::int64_t>(text);
            if (value && *value >= least && *value <= kLargest) return std::string();
            return fmt::format("a whole number from {} to {} is needed; got \"{}\"", least,
                               kLargest, text);
          },
          ""};
}

CLI::Validator positive_number() {
  return {[](const std::string& text) {
            const auto value = number<double>(text);
            if (value && std::isfinite(*value) && *value > 0) return std::string();
            return fmt::format("a positive number is needed; got \"{}\"", text);
          },
          ""};
}

// The size of the original experiment: RoFormer-small. It wants a corpus of its own, and a day.
void use_seed_preset(ExperimentOptions& options) {
  options.steps = 50000;
  options.layers = 6;
  options.width = 384;
  options.heads = 6;
  options.batch = 256;
  options.learning_rate = 5e-4;
}

// Presets first: the options typed beside one change it, wherever they stand.
void use_preset(int argc, const char* const* argv, ExperimentOptions& options) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    const std::string_view next = i + 1 < argc ? argv[i + 1] : "";
    if (argument == "--preset=seed" || (argument == "--preset" && next == "seed"))
      use_seed_preset(options);
  }
}

void add_options(CLI::App& app, CommandLine& line, std::string& rules, std::string& preset) {
  ExperimentOptions& o = line.experiment;
  const auto count = [&](const char* name, std::int64_t& value, const char* help) {
    app.add_option(name, value, help)->check(whole_number(1))->capture_default_str();
  };
  // Of an option given twice the last counts.
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.add_option(
         "--rules", rules,
         "Scale rules, one model each, separated by commas; all: every rule there is, where it\n"
         "has a training length tied to this one (standard,entropy_invariant(base=TRAIN_LENGTH))")
      ->type_name("RULES");
  app.add_option("--corpus", o.corpus, "Text files; the last tenth is held out")
      ->take_all()
      ->capture_default_str();
  auto* tokenizer =
      app.add_option("--tokenizer", o.tokenizer, "A SentencePiece model; bytes otherwise");
  app.add_option("--vocabulary", o.vocabulary,
                 "Train a SentencePiece model of so many pieces on the corpus")
      ->check(whole_number(2))
      ->excludes(tokenizer);
  count("--train-length", o.train_length, "Tokens of a training sequence");
  app.add_option("--lengths", o.lengths, "Lengths to evaluate at, separated by commas")
      ->take_all()
      ->delimiter(',')
      ->check(whole_number(1))
      ->capture_default_str();
  app.add_option("--preset", preset,
                 "demo, or seed: the size of the original experiment, RoFormer-small")
      ->check(CLI::IsMember({"demo", "seed"}))
      ->capture_default_str();
  count("--steps", o.steps, "Training steps");
  count("--seeds", o.seeds, "Runs of every rule, for mean and spread");
  count("--layers", o.layers, "Layers of the model");
  count("--width", o.width, "Width of the model");
  count("--heads", o.heads, "Attention heads");
  count("--batch", o.batch, "Sequences of a training step");
  app.add_option("--learning-rate", o.learning_rate, "Highest learning rate of AdamW")
      ->check(positive_number())
      ->capture_default_str();
  app.add_option("--threads", o.threads, "Threads; all cores otherwise")->check(whole_number(1));
  app.add_option("--seed", o.seed, "Seed of the first run")
      ->check(whole_number(0))
      ->capture_default_str();
  app.add_option("--output", o.output, "Folder for result.json, report.html and the models")
      ->capture_default_str();
  app.add_flag("--resume", o.resume, "Go on with the run in the output folder");
  app.add_flag("--json", line.json, "Print result.json instead of the table");
  app.add_flag("--quiet", line.quiet, "No progress");
}

// CLI11's own words, on one line.
std::string one_line(std::string text) {
  std::ranges::replace(text, '\n', ' ');
  return text;
}

// The command as one would type it, without --resume.
std::string command_of(int argc, const char* const* argv) {
  std::string command = "isentrope extrapolate";
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--resume") continue;
    const bool plain = argument.find_first_not_of(
                           "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                           "-_=+,./:@%") == std::string_view::npos;
    command +=
        plain && !argument.empty() ? fmt::format(" {}", argument) : fmt::format(" '{}'", argument);
  }
  return command;
}

}  // namespace

std::vector<ScaleRule> parse_rules(std::string_view text) {
  std::vector<ScaleRule> rules;
  int depth = 0;
  std::size_t begin = 0;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    const char c = i < text.size() ? text[i] : ',';
    depth += (c == '(') - (c == ')');
    if (i < text.size() && (c != ',' || depth > 0)) continue;
    const ScaleRule rule = ScaleRule::parse(text.substr(begin, i - begin));
    if (std::ranges::find(rules, rule) != rules.end()) {
      throw Error(fmt::format("[rules] every rule must be given once; got {} twice", rule.text()));
    }
    rules.push_back(rule);
    begin = i + 1;
  }
  return rules;
}

CommandLine parse_command_line(int argc, const char* const* argv) {
  CommandLine line;
  std::string rules;
  std::string preset = "demo";
  use_preset(argc, argv, line.experiment);
  CLI::App app(
      "Trains small masked language models that differ only in the scale rule of their attention, "
      "and evaluates\n"
      "them at lengths they never saw. Writes result.json and report.html.",
      "isentrope extrapolate");
  add_options(app, line, rules, preset);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    line.help = app.help();
    return line;
  } catch (const CLI::ParseError& error) {
    throw Error(one_line(error.what()));
  }
  ExperimentOptions& options = line.experiment;
  options.command = command_of(argc, argv);
  options.rules = app.count("--rules") == 0 ? default_rules(options.train_length)
                  : rules == "all" ? ScaleRule::all(static_cast<double>(options.train_length))
                                   : parse_rules(rules);
  std::ranges::sort(options.lengths);
  const auto repeated = std::ranges::unique(options.lengths);
  options.lengths.erase(repeated.begin(), repeated.end());
  return line;
}

}  // namespace isentrope::lab
