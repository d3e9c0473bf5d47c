#include "tools/lab/result.h"

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

json protocol_json(const ExperimentOptions& options) {
  return {
      {"part", options.part == Part::test ? "test" : "validation"},
      {"gains_part", "validation"},
      {"evaluation_tokens", options.evaluation_tokens},
      {"paired", "start and batches by seed, evaluation masks the same for all"},
      {"verdict",
       "below 5 % by a paired t test, two-sided, after Benjamini and Hochberg's correction for all "
       "leads of a kind together; at least three seeds"}};
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
