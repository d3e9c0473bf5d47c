// Measure: what is told of a trained model. A record of it is JSON, on disk beside the model and in
// the study's results:
//
//   rule, seed, parameters, seconds_per_step, loss (of each step)
//   rows     [{kind: "trained" | "rescaled" | "near" | a probe, rule, tokens, predictions, accuracy,
//            ...}], each measure an array over the lengths, null where it was not finite. `blocks` has
//            for each length the `right` predictions and the `loss` of each block (evaluate.h), and
//            `same_as` the kind of the row that asked the same
//   block_predictions   for each length the predictions of each block
//   gains    of the model of `standard` alone: {gain, accuracy, cross_entropy}, the last two an array
//            over the gains for each length
//
// docs/result-schema.md says what the numbers are.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "lab/evaluate.h"

namespace isentrope::lab {

// The measures of a row, by their names in records.
struct Measure {
  const char* name;
  double Evaluation::* value;
};
inline constexpr Measure kMeasures[] = {
    {"accuracy", &Evaluation::accuracy}, {"cross_entropy", &Evaluation::cross_entropy},
    {"entropy", &Evaluation::entropy},   {"gradient_mass", &Evaluation::gradient_mass},
    {"distance", &Evaluation::distance}, {"share_beyond", &Evaluation::share_beyond}};

// What models are measured on, and how.
struct MeasurePlan {
  std::vector<std::int64_t> lengths;
  std::span<const Token> text;        // of the part asked for
  std::span<const Token> validation;  // for the curve of gains
  std::int64_t tokens = 0;            // of the text, at most
  std::vector<ScaleRule> rescaled{};  // for the model of `standard`
  bool probes = false;                // frozen and growing scales, far keys seen and hidden
};

// Probes of a model trained with `rule` at train_length, where both are its rule: "frozen" keeps
// the scale of rows beyond that length at what it is there, "growing" has it grow as ln n from
// there on. "frozen_near" and "growing_near" hide the keys that training never saw, and count them
// in n.
[[nodiscard]] ScaleRule frozen(const ScaleRule& rule, std::int64_t train_length);
[[nodiscard]] ScaleRule growing(const ScaleRule& rule, std::int64_t train_length);

// The gains of the curve: 2^(i/4), from a half to two and a bit.
[[nodiscard]] std::vector<double> curve_gains();

// The rule that gives rows of at least train_length keys the standard scale times `gain`, bias
// included, and shorter ones the standard scale.
[[nodiscard]] ScaleRule constant_gain(double gain, std::int64_t train_length);

// The members "rows" and "gains" of the record of a model trained with `rule`. `at` is told what is
// being looked at. Throws Interrupted.
[[nodiscard]] nlohmann::json measure_model(const Transformer& model, const ModelRule& rule,
                                           const MeasurePlan& plan,
                                           const std::function<void(const std::string&)>& at);

}  // namespace isentrope::lab
