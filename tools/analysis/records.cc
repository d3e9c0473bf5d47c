#include "tools/analysis/records.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <string>

#include "isentrope/error.h"
#include "isentrope/scale_rule.h"
#include "tools/analysis/rows.h"
#include "tools/analysis/statistics.h"

namespace isentrope::analysis {
namespace {

using nlohmann::json;

json by_length(const json& values, const json& lengths) {
  json object = json::object();
  for (std::size_t i = 0; i < lengths.size(); ++i)
    object[std::to_string(lengths[i].get<std::int64_t>())] = values[i];
  return object;
}

// Returns a summary over seeds of each common member: {"64": ..., "128": ...}.
json over_seeds(const json& seeds, const char* measure,
                double (*summary)(const std::vector<double>&)) {
  json object = json::object();
  for (const auto& [key, first] : seeds.front().at(measure).items()) {
    std::vector<double> values;
    for (const json& seed : seeds) values.push_back(number_in(seed.at(measure).at(key)));
    object[key] = summary(values);
  }
  return object;
}

// Returns bits per byte of predictions from up to n tokens: {"1": ..., "2": ..., "4": ...}.
json bits_by_position(const json& nats, double bytes_per_token) {
  json object = json::object();
  for (std::size_t i = 0; i < nats.size(); ++i)
    object[std::to_string(std::int64_t{1} << i)] =
        number_in(nats[i]) / std::numbers::ln2 / bytes_per_token;
  return object;
}

// Returns the result of one seed's row.
json seed_json(const json& record, const json& row) {
  const json& evaluation = record.at("evaluation");
  const json& lengths = evaluation.at("lengths");
  json seed = {{"seed", record.at("seed")}};
  for (const char* measure : kMeasures) {
    if (row.contains(measure)) seed[measure] = by_length(row.at(measure), lengths);
  }
  if (row.contains("by_position"))
    seed["bits_per_byte"] = bits_by_position(row["by_position"], evaluation.at("bytes_per_token"));
  return seed;
}

json mean_loss(const std::vector<const json*>& records) {
  json loss = json::array();
  for (std::size_t step = 0; step < records.front()->at("loss").size(); ++step) {
    std::vector<double> values;
    for (const json* record : records) values.push_back(number_in(record->at("loss")[step]));
    loss.push_back(mean(values));
  }
  return loss;
}

json row_json(const Row& summary) {
  json row = {{"rule", summary.name.rule}, {"kind", summary.name.kind}, {"seeds", json::array()}};
  for (std::size_t i = 0; i < summary.seeds.size(); ++i)
    row["seeds"].push_back(seed_json(*summary.records[i], *summary.seeds[i]));
  for (const auto& [rule, kind] : summary.also)
    row["also"].push_back({{"rule", rule}, {"kind", kind}});
  const auto summarise = [&](const char* measure) {
    if (!row["seeds"].front().contains(measure)) return;
    row[measure] = over_seeds(row["seeds"], measure, mean);
    if (summary.seeds.size() > 1)
      row["spread"][measure] = over_seeds(row["seeds"], measure, spread);
  };
  for (const char* measure : kMeasures) summarise(measure);
  summarise("bits_per_byte");
  if (summary.name.kind == "rescaled") row["trained_as"] = "standard";
  if (summary.name.kind != "trained") return row;
  row["parameters"] = summary.records.front()->at("parameters");
  const bool losses = std::ranges::all_of(
      summary.records, [](const json* record) { return record->contains("loss"); });
  if (losses) row["loss"] = mean_loss(summary.records);
  std::vector<double> seconds;
  for (const json* record : summary.records) seconds.push_back(record->at("seconds_per_step"));
  row["seconds_per_step"] = mean(seconds);
  return row;
}

// Returns the gain of each rule that was trained or rescaled, by its text. Excludes the standard
// rule, whose gain is 1, learned factors, and rules of cosines, whose scores differ.
json gains_of_rules(const std::vector<json>& records) {
  const json& model = records.front().at("configuration");
  const std::int64_t width = model.at("width"), heads = model.at("heads");
  if (heads < 1 || width < heads) {
    throw Error("[gains_json] a model must be as wide as it has heads; got width " +
                std::to_string(width) + " and heads " + std::to_string(heads));
  }
  const std::int64_t dim = width / heads;
  json gains = json::object();
  for (const json& record : records) {
    for (const json& row : record.at("rows")) {
      const std::string text = row.at("rule");
      if ((row.at("kind") != "trained" && row.at("kind") != "rescaled") || text == "standard" ||
          text.starts_with("learned(") || text.starts_with("unit("))
        continue;
      const ScaleRule rule = ScaleRule::parse(text);
      for (const std::int64_t n : record.at("evaluation").at("lengths"))
        gains[text][std::to_string(n)] =
            rule.lambda({n, n - 1, n}, dim) * std::sqrt(static_cast<double>(dim));
    }
  }
  return gains;
}

}  // namespace

json rules_json(const std::vector<json>& records) {
  json rules = json::array();
  for (const Row& row : rows_of(records)) rules.push_back(row_json(row));
  return rules;
}

json gains_json(const std::vector<json>& records) {
  std::vector<const json*> curves;
  for (const json& record : records) {
    if (record.contains("gains")) curves.push_back(&record.at("gains"));
  }
  if (curves.empty()) return {};
  const json& lengths = records.front().at("evaluation").at("lengths");
  json result = {{"gain", curves.front()->at("gain")}};
  for (const char* measure : {"accuracy", "cross_entropy"}) {
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      json means = json::array();
      for (std::size_t j = 0; j < result["gain"].size(); ++j) {
        std::vector<double> values;
        for (const json* curve : curves) values.push_back(number_in(curve->at(measure)[i][j]));
        means.push_back(mean(values));
      }
      result[measure][std::to_string(lengths[i].get<std::int64_t>())] = means;
    }
  }
  result["of_rules"] = gains_of_rules(records);
  return result;
}

double uniform_entropy(std::int64_t n, bool causal) {
  const auto keys = static_cast<double>(n);
  return causal ? std::lgamma(keys + 1) / keys : std::log(keys);
}

}  // namespace isentrope::analysis
