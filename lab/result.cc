#include "lab/result.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "isentrope/target.h"

namespace isentrope::lab {
namespace {

using nlohmann::json;

struct Measure {
  const char* name;
  double Evaluation::* value;
};

constexpr Measure kMeasures[] = {{"accuracy", &Evaluation::accuracy},
                                 {"cross_entropy", &Evaluation::cross_entropy},
                                 {"entropy", &Evaluation::entropy},
                                 {"gradient_mass", &Evaluation::gradient_mass}};

double mean(const std::vector<double>& x) {
  double sum = 0;
  for (const double value : x) sum += value;
  return sum / static_cast<double>(x.size());
}

// The sample standard deviation, of two values or more.
double spread(const std::vector<double>& x) {
  const double center = mean(x);
  double sum = 0;
  for (const double value : x) sum += (value - center) * (value - center);
  return std::sqrt(sum / static_cast<double>(x.size() - 1));
}

template <typename Get>
std::vector<double> over_seeds(const std::vector<ModelResult>& models, const Get& get) {
  std::vector<double> values;
  for (const ModelResult& model : models) values.push_back(get(model));
  return values;
}

// {"64": summary of the measure at 64 over the models, ...}.
json by_length(const Measure& measure, const std::vector<std::int64_t>& lengths,
               const std::vector<ModelResult>& models,
               double (*summary)(const std::vector<double>&)) {
  json object = json::object();
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    object[std::to_string(lengths[i])] = summary(over_seeds(
        models, [&](const ModelResult& model) { return model.evaluations[i].*measure.value; }));
  }
  return object;
}

// The members that a seed and the mean over seeds have alike.
json summary_json(const std::vector<std::int64_t>& lengths,
                  const std::vector<ModelResult>& models) {
  json object;
  for (const Measure& measure : kMeasures)
    object[measure.name] = by_length(measure, lengths, models, mean);
  object["loss"] = json::array();
  for (std::size_t step = 0; step < models.front().loss.size(); ++step) {
    object["loss"].push_back(
        mean(over_seeds(models, [&](const ModelResult& model) { return model.loss[step]; })));
  }
  object["seconds_per_step"] =
      mean(over_seeds(models, [](const ModelResult& model) { return model.seconds_per_step; }));
  return object;
}

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

std::string table_of(const json& result, const char* measure, int digits) {
  std::size_t name_width = 0;
  for (const json& rule : result.at("rules")) {
    name_width = std::max(name_width, rule.at("rule").get_ref<const std::string&>().size());
  }
  const bool spreads = result.at("rules").at(0).contains("spread");
  const int column = spreads ? 16 : 9;
  std::string text = fmt::format("{:{}}", "", name_width);
  for (const json& length : result.at("lengths"))
    text += fmt::format("{:>{}}", length.get<std::int64_t>(), column);
  for (const json& rule : result.at("rules")) {
    text += fmt::format("\n{:{}}", rule.at("rule").get<std::string>(), name_width);
    for (const json& length : result.at("lengths")) {
      const std::string key = std::to_string(length.get<std::int64_t>());
      std::string cell = fmt::format("{:.{}f}", rule.at(measure).at(key).get<double>(), digits);
      if (spreads)
        cell +=
            fmt::format(" ± {:.{}f}", rule.at("spread").at(measure).at(key).get<double>(), digits);
      text += fmt::format("{:>{}}", cell, column);
    }
  }
  return text + "\n";
}

}  // namespace

json rule_json(const std::string& rule, const std::vector<std::int64_t>& lengths,
               const std::vector<ModelResult>& models) {
  json object = summary_json(lengths, models);
  object["rule"] = rule;
  object["parameters"] = models.front().parameters;
  if (!models.front().trained_as.empty()) object["trained_as"] = models.front().trained_as;
  for (const ModelResult& model : models) {
    json one = summary_json(lengths, {model});
    one["seed"] = model.seed;
    object["seeds"].push_back(one);
  }
  if (models.size() > 1) {
    for (const Measure& measure : kMeasures) {
      object["spread"][measure.name] = by_length(measure, lengths, models, spread);
    }
  }
  return object;
}

json evaluation_json(const std::vector<std::int64_t>& lengths, const ModelResult& model) {
  json object;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    object["tokens"][std::to_string(lengths[i])] = model.evaluations[i].tokens;
    object["predictions"][std::to_string(lengths[i])] = model.evaluations[i].predictions;
  }
  return object;
}

json machine_json() {
  return {{"cpu", cpu_name()},
          {"threads", at::get_num_threads()},
          {"instruction_set", active_target()}};
}

std::string table(const json& result) {
  return fmt::format(
      "Masked tokens predicted right (%), trained at length {}\n{}\n"
      "Mean entropy of the attention rows (nats)\n{}\n"
      "Mean gradient mass, lambda (1 - sum p^2)\n{}",
      result.at("train_length").get<std::int64_t>(), table_of(result, "accuracy", 2),
      table_of(result, "entropy", 3), table_of(result, "gradient_mass", 4));
}

}  // namespace isentrope::lab
