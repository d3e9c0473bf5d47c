// Tables of calibration across the protocol's models, from docs/results/calibration-models.json.

#include <fmt/core.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "docs/generate/tables.h"
#include "tools/report/numbers.h"

namespace isentrope::docs {
namespace {

using nlohmann::ordered_json;
using report::decimal;
using report::from_to;
using report::number_of;

// Some differences that tests decide are below a thousandth.
constexpr int kDecimals = 4;

std::vector<double> differences(std::vector<double> ours, const std::vector<double>& theirs) {
  for (std::size_t i = 0; i < ours.size(); ++i) ours[i] -= theirs.at(i);
  return ours;
}

// Returns a lead, bold if the corrected test is significant.
std::string lead(const ordered_json& test) {
  const std::string words = with_interval(test.at("mean"), number_of(test.at("low")),
                                          number_of(test.at("high")), kDecimals);
  return test.value("called", false) ? "**" + words + "**" : words;
}

// Table by kind of document. Exploratory, because documents of one kind may be correlated: parts of
// one work or manuals of one project. "scripture-isaiah" is of the kind "scripture".
std::string by_kind(const ordered_json& documents, const ordered_json& beyond) {
  const std::vector<double> changes = differences(beyond.at("entropy"), beyond.at("none"));
  std::map<std::string, std::vector<double>> kinds;
  auto change = changes.begin();
  for (const auto& [name, fingerprint] : documents.items())
    kinds[name.substr(0, name.find('-'))].push_back(*change++);
  std::vector<double> means;
  for (const auto& [kind, of_kind] : kinds) means.push_back(mean(of_kind));
  return with_interval(means, kDecimals);
}

Rows leads_of(const ordered_json& record) {
  const ordered_json& documents = record.at("documents");
  Rows rows = {{"model", "stretch", "positions", "ln gain", "best of the grid", "nats", "to none",
                "to YaRN's", "to logn", "to the best: equivalent?", "df", "to none, by kind"}};
  for (const auto& [name, model] : record.at("models").items()) {
    for (const auto& [stretch, found] : model.at("stretches").items()) {
      const ordered_json &tests = found.at("tests"), &lengths = found.at("lengths");
      rows.push_back({model.at("what"), stretch, from_to(lengths.at(1), lengths.back()),
                      decimal(found.at("log_gain"), 3), decimal(found.at("best"), 2),
                      decimal(mean(found.at("beyond").at("entropy").get<std::vector<double>>()), 3),
                      lead(tests.at("none")), lead(tests.at("yarn")), lead(tests.at("logn")),
                      lead(tests.at("best")), std::to_string(tests.at("none").at("df").get<int>()),
                      by_kind(documents, found.at("beyond"))});
    }
  }
  return rows;
}

// Returns whether the best constant of the grid is no gain, whose numbers are shown once.
bool is_none(const ordered_json& stretch) { return stretch.at("best") == 0; }

// Returns the mean over the documents of the numbers at one index.
double mean_at(std::size_t place, const ordered_json& documents) {
  std::vector<double> numbers;
  for (const ordered_json& document : documents) numbers.push_back(document.at(place));
  return mean(numbers);
}

// Returns the mean loss of the answers for each document.
std::vector<double> by_document(const ordered_json& documents) {
  std::vector<double> means;
  for (const ordered_json& document : documents)
    means.push_back(mean(document.get<std::vector<double>>()));
  return means;
}

Rows answers_of(const ordered_json& models) {
  Rows rows = {{"model", "stretch", "method", "loss of an answer, nearest to farthest line",
                "measured gain minus it"}};
  for (const auto& [name, model] : models.items()) {
    for (const auto& [stretch, found] : model.at("stretches").items()) {
      for (const auto& [method, documents] : found.at("answers").at("nll").items()) {
        if (method == "best" && is_none(found)) continue;
        std::string losses;
        for (std::size_t i = 0; i < documents.front().size(); ++i)
          losses += (losses.empty() ? "" : " ") + decimal(mean_at(i, documents), 2);
        const ordered_json& measured = found.at("answers").at("nll").at("entropy");
        rows.push_back({name, stretch, method, losses,
                        method == "entropy" ? "–"
                                            : with_interval(differences(by_document(measured),
                                                                        by_document(documents)),
                                                            kDecimals)});
      }
    }
  }
  return rows;
}

// Rows of each method's mean loss in a bin of positions; the first is within the trained length.
Rows positions_of(const ordered_json& models) {
  const std::vector<std::string> methods = {"entropy", "none", "yarn", "logn", "best"};
  Rows rows = {{"model", "stretch", "positions"}};
  rows.front().insert(rows.front().end(), methods.begin(), methods.end());
  for (const auto& [name, model] : models.items()) {
    for (const auto& [stretch, found] : model.at("stretches").items()) {
      const ordered_json& lengths = found.at("lengths");
      for (std::size_t bin = 0; bin + 1 < lengths.size(); ++bin) {
        std::vector<std::string> row = {name, stretch,
                                        from_to(lengths.at(bin), lengths.at(bin + 1))};
        for (const std::string& method : methods) {
          const double loss = mean_at(bin, found.at("losses").at(method));
          row.push_back(method == "best" && is_none(found) ? "–" : decimal(loss, 3));
        }
        rows.push_back(row);
      }
    }
  }
  return rows;
}

// Difference of tuned factors to the best constant. Exploratory: the protocol does not test it.
std::string tuned_to_best(const ordered_json& protocol, const ordered_json& model) {
  const ordered_json& stretch =
      model.at("stretches").at(std::to_string(protocol.at("tuning").at("stretch").get<int>()));
  return with_interval(differences(model.at("tuning").at("beyond").at("tuned constant"),
                                   stretch.at("beyond").at("best")),
                       kDecimals);
}

std::string tuned(const ordered_json& protocol, const ordered_json& models) {
  std::string lines;
  for (const auto& [name, model] : models.items()) {
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
      ordered_json::parse(std::ifstream(docs / "../bench/models/protocol.json"));
  std::ifstream file(docs / "results/calibration-models.json");
  const ordered_json record = ordered_json::parse(file);
  const ordered_json& models = record.at("models");
  return {{"calibration-models", markdown_table(leads_of(record)) + tuned(protocol, models) +
                                     "\n\n" + markdown_table(positions_of(models)) + "\n" +
                                     markdown_table(answers_of(models))}};
}

}  // namespace isentrope::docs
