#include "tools/lab/training.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "isentrope/target.h"
#include "src/files/writing.h"
#include "tools/lab/commit.h"
#include "tools/lab/interrupt.h"
#include "tools/lab/measure.h"
#include "tools/lab/result.h"
#include "tools/lab/trainer.h"

namespace isentrope::lab {
namespace {

using nlohmann::json;

constexpr std::int64_t kCheckpointInterval = 50;  // steps that a kill may lose

}  // namespace

ModelConfig model_of(const ExperimentOptions& options, const Tokenizer& tokenizer) {
  ModelConfig model = options.model;
  model.vocabulary = tokenizer.vocabulary();
  model.train_length = options.train_length;
  return model;
}

std::vector<Training> trainings_of(const ExperimentOptions& options, const RunFolder& folder,
                                   const Material& material) {
  std::vector<Training> trainings;
  for (std::int64_t i = 0; i < options.seeds; ++i) {
    for (const ModelRule& rule : options.rules) {
      trainings.emplace_back(options, folder, material, rule,
                             options.seed + static_cast<std::uint64_t>(i));
    }
  }
  return trainings;
}

Training::Training(const ExperimentOptions& options, const RunFolder& folder,
                   const Material& material, ModelRule rule, std::uint64_t seed)
    : options_(options),
      folder_(folder),
      material_(material),
      rule_(std::move(rule)),
      seed_(seed) {}

std::string Training::name() const {
  return options_.seeds > 1 ? fmt::format("{}, seed {}", rule_.text(), seed_) : rule_.text();
}

// Returns all that determines the weights.
json Training::configuration() const {
  const ModelConfig model = model_of(options_, *material_.tokenizer);
  json configuration = {{"rule", rule_.text()},
                        {"seed", seed_},
                        {"model", name_of(model.shape)},
                        {"init", name_of(model.init)},
                        {"positions", name_of(model.positions)},
                        {"objective", name_of(model.objective)},
                        {"embedding_norm", model.embedding_norm},
                        {"dropout", model.dropout},
                        {"layers", model.layers},
                        {"width", model.width},
                        {"heads", model.heads},
                        {"vocabulary", model.vocabulary},
                        {"batch", options_.batch},
                        {"train_length", options_.train_length},
                        {"steps", options_.steps},
                        {"learning_rate", options_.learning_rate},
                        {"corpus", fmt::format("{:016x}", material_.fingerprint)}};
  // Omitted at its default, so that records from before the option existed still match.
  if (options_.bias_learning_rate != 1)
    configuration["bias_learning_rate"] = options_.bias_learning_rate;
  return configuration;
}

// Returns the measurement settings that a record must match to be reused.
json Training::evaluation() const {
  json rescaled = json::array();
  if (rule_ == ModelRule{}) {
    for (const ScaleRule& rule : options_.rescaled) rescaled.push_back(rule.text());
  }
  json evaluation = {{"part", options_.part == Part::test ? "test" : "validation"},
                     {"lengths", options_.lengths},
                     {"tokens", options_.evaluation_tokens},
                     {"bytes_per_token", material_.bytes_per_token(options_.part)},
                     {"rescaled", rescaled}};
  if (options_.probes) evaluation["probes"] = true;
  return evaluation;
}

std::filesystem::path Training::checkpoint_path() const { return folder_.checkpoint(rule_, seed_); }

std::filesystem::path Training::record_path() const { return folder_.record(rule_, seed_); }

std::optional<json> Training::saved_record() const {
  const std::filesystem::path path = record_path();
  if (!folder_.holds_this_run() || !std::filesystem::exists(path)) return {};
  json record = read_record(path);
  require_same(record["configuration"], configuration(), path);
  if (record["evaluation"] != evaluation() || !holds_every_measure(record)) return {};
  return record;
}

std::optional<Checkpoint> Training::saved_checkpoint() const {
  const std::filesystem::path path = checkpoint_path();
  if (!folder_.holds_this_run() || !std::filesystem::exists(path)) return {};
  return load_checkpoint(path, configuration());
}

std::int64_t Training::steps_left() const {
  const auto checkpoint = saved_checkpoint();
  if (saved_record()) return 0;
  return options_.steps - (checkpoint ? checkpoint->steps_done : 0);
}

json Training::run(Progress& progress) const {
  if (auto record = saved_record()) return *record;
  const ModelConfig config = model_of(options_, *material_.tokenizer);
  Transformer model(config, rule_, seed_);
  Trainer trainer({options_.steps, options_.warm_up(), options_.batch, options_.train_length,
                   options_.learning_rate, seed_, options_.bias_learning_rate},
                  model, material_.parts.training);
  TrainingHistory history;
  if (auto checkpoint = saved_checkpoint()) {
    trainer.restore(checkpoint->state, checkpoint->steps_done);
    history = std::move(checkpoint->history);
    progress.say(fmt::format("{}: going on after step {} of {}", name(), trainer.steps_done(),
                             options_.steps));
  }
  if (!trainer.finished()) history = train(trainer, std::move(history), progress);

  json record = measure_model(
      model, rule_,
      {.lengths = options_.lengths,
       .text = material_.part(options_.part),
       .validation = material_.parts.validation,
       .tokens = options_.evaluation_tokens,
       .rescaled = options_.rescaled,
       .probes = options_.probes},
      [&](const std::string& activity) { progress.now(fmt::format("{}: {}", name(), activity)); });
  record["configuration"] = configuration();
  record["evaluation"] = evaluation();
  record["program"] = {{"version", ISENTROPE_VERSION},
                       {"commit", program_commit()},
                       {"instruction_set", active_target()},
                       {"cpu", cpu_name()}};
  record["rule"] = rule_.text();
  record["seed"] = seed_;
  record["parameters"] = model.parameter_count();
  record["loss"] = history.loss;
  record["seconds_per_step"] = history.seconds / static_cast<double>(options_.steps);
  const std::string text = record.dump();
  command::write_file(record_path(), text + "\n");
  return json::parse(text);  // null for non-finite, as a reader gets it
}

TrainingHistory Training::train(Trainer& trainer, TrainingHistory history,
                                Progress& progress) const {
  using Clock = std::chrono::steady_clock;
  throw_if_interrupted();
  while (!trainer.finished()) {
    const Clock::time_point start = Clock::now();
    history.loss.push_back(trainer.step());
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    history.seconds += seconds;
    progress.step(name(), trainer.steps_done(), options_.steps, history.loss.back(), seconds);
    const bool stop = interrupted();
    if (stop || trainer.finished() || trainer.steps_done() % kCheckpointInterval == 0)
      save_checkpoint(checkpoint_path(), configuration(), trainer, history);
    if (stop) throw Interrupted();
  }
  return history;
}

}  // namespace isentrope::lab
