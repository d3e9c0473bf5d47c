#include "tools/lab/experiment.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <ctime>

#include "isentrope/target.h"
#include "src/files/writing.h"
#include "tools/analysis/differences.h"
#include "tools/analysis/records.h"
#include "tools/lab/interrupt.h"
#include "tools/lab/material.h"
#include "tools/lab/memory.h"
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
