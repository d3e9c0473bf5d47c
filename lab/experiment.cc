#include "lab/experiment.h"

#include <ATen/Parallel.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <memory>
#include <optional>

#include "isentrope/error.h"
#include "isentrope/libtorch/attention.h"
#include "lab/atomic_file.h"
#include "lab/checkpoint.h"
#include "lab/corpus.h"
#include "lab/evaluate.h"
#include "lab/interrupt.h"
#include "lab/random.h"
#include "lab/result.h"
#include "lab/run_folder.h"
#include "lab/tokenizer.h"
#include "lab/trainer.h"
#include "report/extrapolation.h"

namespace isentrope::lab {
namespace {

using nlohmann::json;

constexpr std::int64_t kCheckpointInterval = 50;  // steps a kill may cost

// What every model of the experiment shares.
struct Material {
  Corpus corpus;
  std::unique_ptr<Tokenizer> tokenizer;
  std::vector<Token> tokens;
  Split split;
  std::uint64_t fingerprint = 0;  // of the tokens
};

// One model to train: a rule and a seed.
struct Model {
  ScaleRule rule;
  std::uint64_t seed = 0;
  ScaleRule trained_as;  // the first rule that gives rows of the training length the same scale
  std::string name;      // for the progress
};

std::unique_ptr<Tokenizer> make_tokenizer(const ExperimentOptions& options, const RunFolder& folder,
                                          const std::string& text, Progress& progress) {
  if (!options.tokenizer.empty()) return load_tokenizer(options.tokenizer);
  if (options.vocabulary == 0) return byte_tokenizer();
  if (std::filesystem::exists(folder.tokenizer()))
    return load_tokenizer(folder.tokenizer().string());
  progress.now(fmt::format("training a tokenizer of {} pieces", options.vocabulary));
  return train_tokenizer(text, options.vocabulary);
}

Material prepare(const ExperimentOptions& options, const RunFolder& folder, Progress& progress) {
  Material material;
  material.corpus = read_corpus(options.corpus);
  material.tokenizer = make_tokenizer(options, folder, material.corpus.text, progress);
  material.tokens = material.tokenizer->encode(material.corpus.text);
  material.split = split_corpus(material.tokens);
  require_windows(material.split, options.train_length, options.lengths.back());
  for (const Token token : material.tokens) {
    material.fingerprint = scatter(material.fingerprint ^ static_cast<std::uint64_t>(token));
  }
  return material;
}

RoformerShape shape_of(const ExperimentOptions& options, const Tokenizer& tokenizer) {
  return {tokenizer.vocabulary(), options.layers, options.width, options.heads};
}

TrainingPlan plan_of(const ExperimentOptions& options, std::uint64_t seed) {
  return {options.steps,        options.warm_up(),     options.batch,
          options.train_length, options.learning_rate, seed};
}

// All that determines a trained model.
json configuration_of(const ExperimentOptions& options, const Material& material,
                      const Model& model) {
  return {{"rule", model.rule.text()},
          {"seed", model.seed},
          {"layers", options.layers},
          {"width", options.width},
          {"heads", options.heads},
          {"vocabulary", material.tokenizer->vocabulary()},
          {"batch", options.batch},
          {"train_length", options.train_length},
          {"steps", options.steps},
          {"learning_rate", options.learning_rate},
          {"corpus", fmt::format("{:016x}", material.fingerprint)}};
}

// The scale of every head and row of a training window.
at::Tensor scale_in_training(const ExperimentOptions& options, const ScaleRule& rule) {
  const at::Tensor zeros =
      at::zeros({1, options.heads, options.train_length, options.width / options.heads});
  return torch_attention(zeros, zeros, zeros, rule).lambda;
}

std::vector<Model> models_of(const ExperimentOptions& options) {
  std::vector<Model> models;
  std::vector<at::Tensor> scales;  // of the rules so far
  for (const ScaleRule& rule : options.rules) {
    scales.push_back(scale_in_training(options, rule));
    const auto same = std::ranges::find_if(
        scales, [&](const at::Tensor& scale) { return at::equal(scale, scales.back()); });
    // A scale that is NaN equals nothing, itself included.
    const ScaleRule& trained_as =
        same == scales.end() ? rule
                             : options.rules[static_cast<std::size_t>(same - scales.begin())];
    for (std::int64_t i = 0; i < options.seeds; ++i) {
      const std::uint64_t seed = options.seed + static_cast<std::uint64_t>(i);
      const std::string suffix = options.seeds > 1 ? fmt::format(", seed {}", seed) : "";
      models.push_back({rule, seed, trained_as, rule.text() + suffix});
    }
  }
  return models;
}

std::string date_now() {
  const std::time_t now = std::time(nullptr);
  std::string text(32, '\0');
  text.resize(std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&now)));
  return text;
}

class Experiment {
 public:
  Experiment(const ExperimentOptions& options, Progress& progress)
      : options_(options),
        progress_(progress),
        folder_(options.output, options.resume),
        material_(prepare(options, folder_, progress)) {
    validate(shape_of(options, *material_.tokenizer));
  }

  json run();

 private:
  ModelResult measure(const Model& model);
  TrainingHistory train(const Model& model, Trainer& trainer, TrainingHistory history);
  void save(const Model& model, const Trainer& trainer, const TrainingHistory& history) const;
  [[nodiscard]] std::optional<Checkpoint> checkpoint_of(const Model& model) const;
  [[nodiscard]] Checkpoint trained(const Model& model) const;
  [[nodiscard]] json config_json() const;
  [[nodiscard]] json corpus_json() const;
  [[nodiscard]] json result_json(const std::vector<ModelResult>& results) const;

  const ExperimentOptions& options_;
  Progress& progress_;
  RunFolder folder_;
  Material material_;
};

std::optional<Checkpoint> Experiment::checkpoint_of(const Model& model) const {
  const std::filesystem::path path = folder_.checkpoint(model.rule, model.seed);
  if (!options_.resume || !std::filesystem::exists(path)) return {};
  return load_checkpoint(path, configuration_of(options_, material_, model));
}

// What the training that the model shares left.
Checkpoint Experiment::trained(const Model& model) const {
  const Model own{model.trained_as, model.seed, model.trained_as, {}};
  return load_checkpoint(folder_.checkpoint(own.rule, own.seed),
                         configuration_of(options_, material_, own));
}

json Experiment::run() {
  const std::vector<Model> models = models_of(options_);
  // Every checkpoint is looked at before the folder is touched.
  std::int64_t steps = 0;
  for (const Model& model : models) {
    const auto checkpoint = checkpoint_of(model);
    if (model.trained_as == model.rule)
      steps += options_.steps - (checkpoint ? checkpoint->steps_done : 0);
  }
  progress_.expect_steps(steps);
  folder_.open();
  if (const std::string model = material_.tokenizer->model(); !model.empty()) {
    replace_file(folder_.tokenizer(), std::vector<std::string_view>{model});
  }

  std::vector<ModelResult> results;
  for (const Model& model : models) results.push_back(measure(model));

  json result = result_json(results);
  const std::string page = report::extrapolation_report(result), text = result.dump(1) + "\n";
  replace_file(folder_.report(), std::vector<std::string_view>{page});
  replace_file(folder_.result(), std::vector<std::string_view>{text});
  folder_.finish();
  return result;
}

ModelResult Experiment::measure(const Model& model) {
  Roformer roformer(shape_of(options_, *material_.tokenizer), model.rule, model.seed);
  Trainer trainer(plan_of(options_, model.seed), roformer, material_.split.training,
                  material_.tokenizer->mask_token());
  TrainingHistory history;
  const bool shared = model.trained_as != model.rule;
  auto checkpoint = shared ? std::optional(trained(model)) : checkpoint_of(model);
  if (checkpoint) {
    trainer.restore(checkpoint->state, checkpoint->steps_done);
    history = std::move(checkpoint->history);
  }
  if (shared) {
    progress_.say(fmt::format("{}: the model of {}, since their scales are the same at length {}",
                              model.name, model.trained_as.text(), options_.train_length));
    save(model, trainer, history);
  } else if (checkpoint) {
    progress_.say(fmt::format("{}: going on after step {} of {}", model.name, trainer.steps_done(),
                              options_.steps));
  }
  if (!trainer.finished()) history = train(model, trainer, std::move(history));

  ModelResult result{model.seed,
                     roformer.parameter_count(),
                     {},
                     history.loss,
                     history.seconds / static_cast<double>(options_.steps),
                     shared ? model.trained_as.text() : ""};
  for (const std::int64_t length : options_.lengths) {
    progress_.now(fmt::format("{}: evaluating at length {}", model.name, length));
    result.evaluations.push_back(
        evaluate(roformer, draw_evaluation_set(material_.split.held_out, length,
                                               material_.tokenizer->mask_token(), model.seed)));
  }
  return result;
}

TrainingHistory Experiment::train(const Model& model, Trainer& trainer, TrainingHistory history) {
  using Clock = std::chrono::steady_clock;
  while (!trainer.finished()) {
    const Clock::time_point start = Clock::now();
    history.loss.push_back(trainer.step());
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    history.seconds += seconds;
    progress_.step(model.name, trainer.steps_done(), options_.steps, history.loss.back(), seconds);
    const bool stop = interrupted();
    if (stop || trainer.finished() || trainer.steps_done() % kCheckpointInterval == 0)
      save(model, trainer, history);
    if (stop) throw Interrupted();
  }
  return history;
}

void Experiment::save(const Model& model, const Trainer& trainer,
                      const TrainingHistory& history) const {
  save_checkpoint(folder_.checkpoint(model.rule, model.seed),
                  configuration_of(options_, material_, model), trainer, history);
}

json Experiment::config_json() const {
  return {{"layers", options_.layers},
          {"width", options_.width},
          {"heads", options_.heads},
          {"batch", options_.batch},
          {"steps", options_.steps},
          {"train_length", options_.train_length},
          {"learning_rate", options_.learning_rate},
          {"warm_up", options_.warm_up()},
          {"seed", options_.seed},
          {"seeds", options_.seeds},
          {"threads", at::get_num_threads()}};
}

json Experiment::corpus_json() const {
  json files = json::array();
  for (const CorpusFile& file : material_.corpus.files)
    files.push_back({{"path", file.path}, {"bytes", file.bytes}});
  return {{"files", files},
          {"characters", count_characters(material_.corpus.text)},
          {"tokens", material_.tokens.size()},
          {"training_tokens", material_.split.training.size()},
          {"held_out_tokens", material_.split.held_out.size()},
          {"tokenizer", material_.tokenizer->name()},
          {"vocabulary", material_.tokenizer->vocabulary()}};
}

json Experiment::result_json(const std::vector<ModelResult>& results) const {
  json rules = json::array();
  auto next = results.begin();
  for (const ScaleRule& rule : options_.rules) {
    const auto end = next + options_.seeds;
    rules.push_back(rule_json(rule.text(), options_.lengths, {next, end}));
    next = end;
  }
  return {{"schema", 1},
          {"program", "isentrope extrapolate"},
          {"version", ISENTROPE_VERSION},
          {"command", options_.command},
          {"date", date_now()},
          {"train_length", options_.train_length},
          {"lengths", options_.lengths},
          {"rules", rules},
          {"evaluation", evaluation_json(options_.lengths, results.front())},
          {"config", config_json()},
          {"corpus", corpus_json()},
          {"machine", machine_json()}};
}

}  // namespace

std::vector<ScaleRule> default_rules(std::int64_t train_length) {
  return {ScaleRule::standard(), ScaleRule::entropy_invariant(static_cast<double>(train_length))};
}

json run_experiment(const ExperimentOptions& options, Progress& progress) {
  if (options.threads > 0) at::set_num_threads(static_cast<int>(options.threads));
  return Experiment(options, progress).run();
}

}  // namespace isentrope::lab
