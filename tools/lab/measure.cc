#include "tools/lab/measure.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace isentrope::lab {
namespace {

using nlohmann::json;

constexpr double kAlike = 1e-6;               // relative: rounding of float
constexpr std::int64_t kCurveTokens = 16384;  // for each of nine gains at each length

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
      row["blocks"]["right"].push_back(evaluation.blocks.right);
      row["blocks"]["loss"].push_back(evaluation.blocks.loss);
      if (rows_.empty()) block_predictions_.push_back(evaluation.blocks.predictions);
      if (!evaluation.by_position.empty()) row["by_position"] = evaluation.by_position;
    }
    rows_.push_back(row);
  }

  // Adds a row equal to the first one under another kind.
  void repeat_first(const char* kind) {
    json row = rows_.front();
    row["same_as"] = row["kind"];
    row["kind"] = kind;
    rows_.push_back(row);
  }

  [[nodiscard]] const json& all() const { return rows_; }
  [[nodiscard]] const json& block_predictions() const { return block_predictions_; }

 private:
  const Transformer& model_;
  const MeasurePlan& plan_;
  const std::function<void(const std::string&)>& at_;
  json rows_ = json::array(), block_predictions_ = json::array();
};

// Returns whether two rules scale rows of every length equally, up to rounding.
bool scales_alike(const ModelConfig& config, const ScaleRule& a, const ScaleRule& b,
                  const std::vector<std::int64_t>& lengths) {
  return std::ranges::all_of(lengths, [&](std::int64_t length) {
    return std::ranges::all_of(
        std::array{&ScaleRule::lambda, &ScaleRule::on_bias}, [&](RuleNumber number) {
          return at::allclose(row_numbers(config, a, number, length, -1),
                              row_numbers(config, b, number, length, -1), kAlike, /*atol=*/0);
        });
  });
}

void add_probes(Rows& rows, const Transformer& model, const ScaleRule& trained,
                const std::string& text, const MeasurePlan& plan) {
  const ModelConfig& config = model.config();
  const std::int64_t length = config.train_length;
  const auto probe = [&](const char* kind, const char* near, const ScaleRule& rule) {
    if (scales_alike(config, trained, rule, plan.lengths)) {
      rows.repeat_first(kind);
    } else {
      rows.add(kind, text, {.rule = rule});
    }
    rows.add(near, text, {.rule = rule, .window = length - 1, .hidden_count = true});
  };
  probe("frozen", "frozen_near", frozen(trained, length));
  probe("growing", "growing_near", growing(trained, length));
}

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

ScaleRule frozen(const ScaleRule& rule, std::int64_t train_length) {
  return rule.with_length({.n_max = static_cast<double>(train_length)});
}

ScaleRule growing(const ScaleRule& rule, std::int64_t train_length) {
  const bool biased = rule.terms().front().form.scale_bias;
  return frozen(rule, train_length) *
         ScaleRule::logn(static_cast<double>(train_length)).with_scaled_bias(biased);
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
  if (plan.probes) {
    add_probes(rows, model, rule.rule, rule.text(), plan);
  } else {
    rows.add("near", rule.text(), {.window = model.config().train_length - 1});
  }
  json record = {{"rows", rows.all()}, {"block_predictions", rows.block_predictions()}};
  if (standard) record["gains"] = gain_curve(model, plan, at);
  return record;
}

}  // namespace isentrope::lab
