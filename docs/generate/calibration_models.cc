// What calibration does across models, out of docs/results/calibration-models.json; of models of
// the protocol whose readings are not all done it says how many stretches are.

#include <fmt/core.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "docs/generate/tables.h"
#include "lab/analysis/paired.h"
#include "report/numbers.h"

namespace isentrope::docs {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;
using report::decimal;
using report::number_of;
using report::signed_decimal;

// "−0.118 [−0.163, −0.073]".
std::string with_interval(double mean, double low, double high) {
  return fmt::format("{} [{}, {}]", signed_decimal(mean, 3), signed_decimal(low, 3),
                     signed_decimal(high, 3));
}

// Bold where the corrected test calls it.
std::string lead(const ordered_json& test) {
  const std::string words =
      with_interval(test.at("mean"), number_of(test.at("low")), number_of(test.at("high")));
  return test.value("called", false) ? "**" + words + "**" : words;
}

ordered_json judged_of(const ordered_json& models) {
  ordered_json judged = ordered_json::object();
  for (const auto& [name, model] : models.items()) {
    if (model.contains("tuning")) judged[name] = model;
  }
  return judged;
}

std::string missing(const ordered_json& protocol, const ordered_json& models,
                    const std::string& name) {
  const std::size_t read = models.contains(name) ? models.at(name).at("stretches").size() : 0;
  return fmt::format("not judged: {} of {} stretches are read", read,
                     protocol.at("stretches").size());
}

Rows leads_of(const ordered_json& protocol, const ordered_json& models,
              const ordered_json& judged) {
  Rows rows = {{"model", "stretch", "ln gain", "best of the grid", "nats", "to none", "to YaRN's",
                "to logn", "to the best: equivalent?"}};
  for (const auto& [name, model] : protocol.at("models").items()) {
    if (!judged.contains(name)) {
      rows.push_back(
          {model.at("what"), "", "", "", missing(protocol, models, name), "", "", "", ""});
      continue;
    }
    for (const auto& [stretch, found] : judged.at(name).at("stretches").items()) {
      const ordered_json& tests = found.at("tests");
      rows.push_back({model.at("what"), stretch, decimal(found.at("log_gain"), 3),
                      decimal(found.at("best"), 2),
                      decimal(mean(found.at("beyond").at("entropy").get<std::vector<double>>()), 3),
                      lead(tests.at("none")), lead(tests.at("yarn")), lead(tests.at("logn")),
                      lead(tests.at("best"))});
    }
  }
  return rows;
}

Rows answers_of(const ordered_json& judged) {
  Rows rows = {{"model", "stretch", "method", "loss of an answer, nearest to farthest line"}};
  for (const auto& [name, model] : judged.items()) {
    for (const auto& [stretch, found] : model.at("stretches").items()) {
      for (const auto& [method, documents] : found.at("answers").at("nll").items()) {
        std::string losses;
        for (std::size_t i = 0; i < documents.front().size(); ++i) {
          std::vector<double> answers;
          for (const ordered_json& document : documents) answers.push_back(document[i]);
          losses += (losses.empty() ? "" : " ") + decimal(mean(answers), 2);
        }
        rows.push_back({name, stretch, method, losses});
      }
    }
  }
  return rows;
}

// Exploratory: the protocol does not test it.
std::string tuned_to_best(const ordered_json& protocol, const ordered_json& model) {
  const ordered_json& stretch =
      model.at("stretches").at(std::to_string(protocol.at("tuning").at("stretch").get<int>()));
  auto differences =
      model.at("tuning").at("beyond").at("tuned constant").get<std::vector<double>>();
  const auto best = stretch.at("beyond").at("best").get<std::vector<double>>();
  for (std::size_t i = 0; i < differences.size(); ++i) differences[i] -= best.at(i);
  const analysis::Paired found = analysis::paired(differences);
  return with_interval(found.mean, found.low, found.high);
}

std::string tuned(const ordered_json& protocol, const ordered_json& judged) {
  std::string lines;
  for (const auto& [name, model] : judged.items()) {
    if (model.at("tuning").is_null()) continue;
    lines += fmt::format(
        "\n- {}: log n to constant, tuned for each head, {} nats; the constants of heads to "
        "the best single one (exploratory), {}.",
        name, lead(model.at("tuning").at("test")), tuned_to_best(protocol, model));
  }
  return lines;
}

}  // namespace

std::map<std::string, std::string> calibration_models_tables(const std::filesystem::path& docs) {
  const ordered_json protocol =
      ordered_json::parse(std::ifstream(docs / "../bench/calibration/protocol.json"));
  std::ifstream file(docs / "results/calibration-models.json");
  const ordered_json models =
      file ? ordered_json::parse(file).at("models") : ordered_json::object();
  const ordered_json judged = judged_of(models);
  std::string page = markdown_table(leads_of(protocol, models, judged));
  if (!judged.empty()) {
    page += "\n" + markdown_table(answers_of(judged)) + tuned(protocol, judged) + "\n";
  }
  return {{"calibration-models", page}};
}

}  // namespace isentrope::docs
