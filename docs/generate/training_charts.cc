// Charts of two trainings, without and with QK-clip, from docs/results/qk-clip.json.

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "docs/generate/tables.h"

namespace isentrope::docs {
namespace {

using nlohmann::json;
using report::Series;

constexpr std::size_t kAveraged = 20;  // steps in each point of the loss

Series named_series(const json& run) {
  const json& tau = run.at("tau");
  return {
      .name = tau.is_null() ? "without QK-clip" : "QK-clip, tau = " + tau.dump(), .x = {}, .y = {}};
}

// Returns the mean over heads at each step, or the largest.
Series of_heads(const json& run, const char* name, bool largest) {
  std::map<double, std::vector<double>> by_step;
  for (const json& row : run.at("rows"))
    by_step[row.at("step").get<double>()].push_back(row.at(name).get<double>());
  Series series = named_series(run);
  for (const auto& [step, values] : by_step) {
    series.x.push_back(step);
    series.y.push_back(largest ? *std::ranges::max_element(values) : mean(values));
  }
  return series;
}

Series loss(const json& run) {
  const auto losses = run.at("losses").get<std::vector<double>>();
  Series series = named_series(run);
  for (std::size_t end = kAveraged; end <= losses.size(); end += kAveraged) {
    const auto last = losses.begin() + static_cast<std::ptrdiff_t>(end);
    series.x.push_back(static_cast<double>(end));
    series.y.push_back(mean({last - kAveraged, last}));
  }
  return series;
}

}  // namespace

std::map<std::filesystem::path, report::LineChart> training_figures(
    const std::filesystem::path& docs) {
  const json found = json::parse(std::ifstream(docs / "results/qk-clip.json"));
  report::LineChart logits = report::chart_named("logits in training"),
                    entropy = report::chart_named("entropy in training"),
                    losses = report::chart_named("loss in training");
  for (const json& run : found.at("runs")) {
    logits.series.push_back(of_heads(run, "max_logit", true));
    entropy.series.push_back(of_heads(run, "entropy", false));
    losses.series.push_back(loss(run));
  }
  return {{"figures/training-logits.svg", logits},
          {"figures/training-entropy.svg", entropy},
          {"figures/training-loss.svg", losses}};
}

}  // namespace isentrope::docs
