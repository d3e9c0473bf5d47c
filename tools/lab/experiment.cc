#include "tools/lab/experiment.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <ctime>

#include "isentrope/error.h"
#include "isentrope/target.h"
#include "src/files/writing.h"
#include "tools/analysis/differences.h"
#include "tools/analysis/records.h"
#include "tools/command/memory.h"
#include "tools/lab/interrupt.h"
#include "tools/lab/material.h"
#include "tools/lab/result.h"
#include "tools/lab/training.h"
#include "tools/report/pages.h"

namespace isentrope::lab {
namespace {

using nlohmann::json;

std::string date_now() {
  const std::time_t now = std::time(nullptr);
  std::string text(32, '\0');
  text.resize(std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&now)));
  return text;
}

// Returns the configuration common to all trainings.
json config_json(const ExperimentOptions& options, const json& record) {
  json config = record.at("configuration");
  for (const char* member : {"rule", "vocabulary", "corpus"}) config.erase(member);
  config["seed"] = options.seed;
  config["seeds"] = options.seeds;
  config["threads"] = options.threads;
  config["warm_up"] = options.warm_up();
  return config;
}

json corpus_json(const Material& material) {
  json files = json::array();
  for (const CorpusFile& file : material.corpus.files)
    files.push_back({{"path", file.path}, {"bytes", file.bytes}});
  const auto& [training, validation, test] = material.parts;
  return {{"files", files},
          {"characters", count_characters(material.corpus.text)},
          {"tokens", training.size() + validation.size() + test.size()},
          {"training_tokens", training.size()},
          {"validation_tokens", validation.size()},
          {"test_tokens", test.size()},
          {"tokenizer", material.tokenizer->name()},
          {"vocabulary", material.tokenizer->vocabulary()}};
}

json result_json(const ExperimentOptions& options, const Material& material,
                 const std::vector<json>& records) {
  json result = {
      {"schema", 3},
      {"program", "isentrope extrapolate"},
      {"version", ISENTROPE_VERSION},
      {"command", options.command},
      {"date", date_now()},
      {"train_length", options.train_length},
      {"lengths", options.lengths},
      {"protocol", protocol_json(options)},
      {"rules", analysis::rules_json(records)},
      {"leads", analysis::leads_json(analysis::exploratory_leads(records))},
      {"evaluation", evaluation_json(records.front())},
      {"config", config_json(options, records.front())},
      {"corpus", corpus_json(material)},
      {"machine",
       {{"cpu", cpu_name()}, {"threads", options.threads}, {"instruction_set", active_target()}}}};
  if (const json gains = analysis::gains_json(records); !gains.is_null()) result["gains"] = gains;
  return result;
}

// Returns a lower bound of a training's bytes: weights, gradients, AdamW's moments, and the larger
// of a step's activations and the longest evaluation. Real use is a few times larger.
double least_memory(const ExperimentOptions& options, const ModelConfig& model) {
  const auto width = static_cast<double>(model.width), layers = static_cast<double>(model.layers);
  const auto vocabulary = static_cast<double>(model.vocabulary);
  const bool biased = model.positions == Positions::t5 || model.positions == Positions::alibi;
  const double predicted = model.objective == Objective::causal ? 1 : 0.15;
  const auto bias = [&](double length) {
    return biased ? static_cast<double>(model.heads) * length * length : 0;
  };
  constexpr double kFloat = 4;  // bytes
  // Projections for q, k, v and out, and a feed-forward block of about 8 width^2 in either shape.
  const double weights = vocabulary * width + 12 * layers * width * width;
  const auto train_length = static_cast<double>(options.train_length);
  const double tokens = static_cast<double>(options.batch) * train_length;
  // q, k, v, attention's output, the feed-forward block's four widths; logits and their gradient.
  const double step =
      tokens * (8 * layers * width + 2 * predicted * vocabulary) + bias(train_length);
  const auto longest = static_cast<double>(options.lengths.back());
  const double evaluation = longest * (4 * width + predicted * vocabulary) + bias(longest);
  return kFloat * (4 * weights + std::max(step, evaluation));
}

// Throws Error if a training needs more memory than this machine has.
void require_memory(const ExperimentOptions& options, const ModelConfig& model) {
  const double needed = least_memory(options, model);
  const auto available = static_cast<double>(command::machine_memory());
  if (needed <= available) return;
  throw Error(fmt::format(
      "[memory] a training needs {} or more; this machine has {}: a smaller model, batch or length "
      "fits",
      command::bytes_text(needed), command::bytes_text(available)));
}

}  // namespace

json run_experiment(const ExperimentOptions& options, Progress& progress) {
  at::set_num_threads(static_cast<int>(options.threads));
  RunFolder folder(options.output, options.existing);
  const Material material = prepare_material(options, folder, progress);
  const ModelConfig model = model_of(options, *material.tokenizer);
  validate(model);

  // Checks everything on disk before changing the folder.
  const std::vector<Training> trainings = trainings_of(options, folder, material);
  std::int64_t steps = 0;
  bool complete = true;
  for (const Training& training : trainings) {
    steps += training.steps_left();
    complete = complete && training.saved_record();
  }
  if (!complete) require_memory(options, model);
  progress.expect_steps(steps);
  folder.open();
  const std::string pieces = material.tokenizer->model();
  if (!pieces.empty()) command::write_file(folder.tokenizer(), pieces);

  note_interrupts();
  std::vector<json> records;
  for (const Training& training : trainings) records.push_back(training.run(progress));
  const std::string text =
      result_json(options, material, records)
          .dump(1, ' ', /*ensure_ascii=*/false, json::error_handler_t::replace);
  // Parses the text that is written, so that the result equals what a reader gets.
  json result = json::parse(text);
  command::write_file(folder.report(), report::extrapolation_report(result));
  command::write_file(folder.result(), text + "\n");
  folder.finish();
  return result;
}

}  // namespace isentrope::lab
