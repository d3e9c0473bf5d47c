#include "lab/measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace isentrope::lab {
namespace {

using nlohmann::json;

constexpr std::int64_t kCurveTokens = 16384;  // of each gain and length: nine times as many in all

class Rows {
 public:
  Rows(const Transformer& model, const MeasurePlan& plan,
       const std::function<void(const std::string&)>& at)
      : model_(model), plan_(plan), at_(at) {}

  void add(const char* kind, const std::string& rule, const Look& look) {
    json row = {{"kind", kind}, {"rule", rule}};
    for (const std::int64_t length : plan_.lengths) {
      at_(fmt::format("{} ({}) at length {}", rule, kind, length));
      const Evaluation evaluation = evaluate(
          model_, draw_evaluation_set(plan_.text, length, plan_.tokens, model_.config()), look);
      row["tokens"].push_back(evaluation.tokens);
      row["predictions"].push_back(evaluation.predictions);
      for (const Measure& measure : kMeasures)
        row[measure.name].push_back(evaluation.*measure.value);
      if (!evaluation.by_position.empty()) row["by_position"] = evaluation.by_position;
    }
    rows_.push_back(row);
  }

  [[nodiscard]] const json& all() const { return rows_; }

 private:
  const Transformer& model_;
  const MeasurePlan& plan_;
  const std::function<void(const std::string&)>& at_;
  json rows_ = json::array();
};

json gain_curve(const Transformer& model, const MeasurePlan& plan,
                const std::function<void(const std::string&)>& at) {
  const std::int64_t tokens = std::min(plan.tokens, kCurveTokens);
  json curve = {{"gain", curve_gains()}};
  for (const std::int64_t length : plan.lengths) {
    at(fmt::format("constant gains at length {}", length));
    const EvaluationSet set = draw_evaluation_set(plan.validation, length, tokens, model.config());
    json accuracy, cross_entropy;
    for (const double gain : curve_gains()) {
      const Evaluation evaluation =
          evaluate(model, set, {.rule = constant_gain(gain, model.config().train_length)});
      accuracy.push_back(evaluation.accuracy);
      cross_entropy.push_back(evaluation.cross_entropy);
    }
    curve["accuracy"].push_back(accuracy);
    curve["cross_entropy"].push_back(cross_entropy);
  }
  return curve;
}

}  // namespace

std::vector<double> curve_gains() {
  std::vector<double> gains;
  for (const double quarters : {-4, -2, -1, 0, 1, 2, 3, 4, 5})
    gains.push_back(std::exp2(quarters / 4));
  return gains;
}

ScaleRule constant_gain(double gain, std::int64_t train_length) {
  if (train_length < 3) return ScaleRule::scaled({gain}).with_scaled_bias(true);
  const auto n = static_cast<double>(train_length);
  return ScaleRule::table({1, n - 1, n}, {1, 1, gain}).with_scaled_bias(true);
}

json measure_model(const Transformer& model, const ModelRule& rule, const MeasurePlan& plan,
                   const std::function<void(const std::string&)>& at) {
  const bool standard = rule == ModelRule{};
  Rows rows(model, plan, at);
  rows.add("trained", rule.text(), {});
  if (standard) {
    for (const ScaleRule& other : plan.rescaled)
      rows.add("rescaled", other.text(), {.rule = other});
  }
  rows.add("near", rule.text(), {.window = model.config().train_length - 1});
  json record = {{"rows", rows.all()}};
  if (standard) record["gains"] = gain_curve(model, plan, at);
  return record;
}

}  // namespace isentrope::lab
