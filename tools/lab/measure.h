// Measurements of a trained model: JSON next to the model and in the study's results:
//
//   rule, seed, parameters, seconds_per_step, loss (of each step)
//   rows     [{kind: "trained" | "rescaled" | "near" | a probe, rule, tokens, predictions, accuracy,
//            ...}], each measure an array over the lengths, null if non-finite. `blocks` has
//            for each length the `right` predictions and the `loss` of each block (evaluate.h), and
//            `same_as` the kind of the row with the same measurement
//   block_predictions   for each length the predictions of each block
//   gains    of the model of `standard` only: {gain, accuracy, cross_entropy}, the last two an array
//            over the gains for each length
//
// docs/result-schema.md defines the numbers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "tools/lab/evaluate.h"

namespace isentrope::lab {

// Measures of a row, by their names in records.
struct Measure {
  const char* name;
  double Evaluation::* value;
};
inline constexpr Measure kMeasures[] = {
    {"accuracy", &Evaluation::accuracy}, {"cross_entropy", &Evaluation::cross_entropy},
    {"entropy", &Evaluation::entropy},   {"gradient_mass", &Evaluation::gradient_mass},
    {"distance", &Evaluation::distance}, {"share_beyond", &Evaluation::share_beyond}};

// Text and variants that models are measured on.
struct MeasurePlan {
  std::vector<std::int64_t> lengths;
  std::span<const Token> text;        // of the requested part
  std::span<const Token> validation;  // for the gain curve
  std::int64_t tokens = 0;            // of the text, at most
  std::vector<ScaleRule> rescaled{};  // applied to the model of `standard`
  bool probes = false;                // frozen and growing scales, with far keys visible and hidden
};

// Probes of a model trained with `rule` at train_length. "frozen" keeps the scale of longer rows at
// its value there, "growing" makes it grow as ln n from there on. "frozen_near" and "growing_near"
// hide the keys beyond the training length, but count them in n.
[[nodiscard]] ScaleRule frozen(const ScaleRule& rule, std::int64_t train_length);
[[nodiscard]] ScaleRule growing(const ScaleRule& rule, std::int64_t train_length);

// Gains of the curve: 2^(i/4), from 1/2 to slightly above 2.
[[nodiscard]] std::vector<double> curve_gains();

// Returns the rule that multiplies the standard scale by `gain`, bias included, for rows of at
// least train_length keys. Shorter rows keep the standard scale.
[[nodiscard]] ScaleRule constant_gain(double gain, std::int64_t train_length);

// Returns the members "rows" and "gains" of the record of a model trained with `rule`. Calls `at`
// with the current measurement. Throws Interrupted.
[[nodiscard]] nlohmann::json measure_model(const Transformer& model, const ModelRule& rule,
                                           const MeasurePlan& plan,
                                           const std::function<void(const std::string&)>& at);

// Reads a record. Throws Error unless every member that all versions write is there, and each that
// is there has the right type and size.
[[nodiscard]] nlohmann::json read_record(const std::filesystem::path& path);

// Returns whether its rows hold every measure. Records of earlier versions may lack some.
[[nodiscard]] bool holds_every_measure(const nlohmann::json& record);

}  // namespace isentrope::lab
