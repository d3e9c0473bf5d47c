#include "lab/result.h"

#include <algorithm>
#include <cmath>
#include <fstream>

namespace isentrope::lab {

using nlohmann::json;

json evaluation_json(const json& record) {
  const json& row = record.at("rows").front();
  const json& lengths = record.at("evaluation").at("lengths");
  json object;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    const std::string length = std::to_string(lengths[i].get<std::int64_t>());
    for (const char* member : {"tokens", "predictions"}) object[member][length] = row.at(member)[i];
  }
  return object;
}

json gains_of_rules_json(const ExperimentOptions& options) {
  std::vector<ScaleRule> rules = options.rescaled;
  for (const ModelRule& rule : options.rules) {
    if (!rule.learned && rule != ModelRule{} && std::ranges::count(rules, rule.rule) == 0)
      rules.push_back(rule.rule);
  }
  const std::int64_t dim = options.model.head_dim();
  json object = json::object();
  for (const ScaleRule& rule : rules) {
    for (const std::int64_t n : options.lengths) {
      object[rule.text()][std::to_string(n)] =
          rule.lambda({n, n - 1, n}, dim) * std::sqrt(static_cast<double>(dim));
    }
  }
  return object;
}

json protocol_json(const ExperimentOptions& options) {
  return {{"part", options.part == Part::test ? "test" : "validation"},
          {"gains_part", "validation"},
          {"evaluation_tokens", options.evaluation_tokens},
          {"paired", "start and batches by seed, evaluation masks the same for all"},
          {"verdict", "beyond two standard errors of the paired differences, at least two seeds"}};
}

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

}  // namespace isentrope::lab
