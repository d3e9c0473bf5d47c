// Small documents in the format of the Python commands.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace isentrope::report {

// Returns paired losses of two methods: one bin of several blocks, and one with undefined errors.
inline nlohmann::json small_losses(const char* first, const char* second) {
  using nlohmann::json;
  const auto row = [](const char* method, int from, int to, double mean, double difference,
                      const json& error, const json& low, const json& high) {
    return json{{"method", method},
                {"from", from},
                {"to", to},
                {"mean", mean},
                {"difference", difference},
                {"se", error},
                {"se_passages", error},
                {"low", low},
                {"high", high},
                {"passages", 3}};
  };
  return {row(first, 0, 512, 3.25, 0.0, 0.0, nullptr, nullptr),
          row(second, 0, 512, 3.125, -0.125, 0.0312, -0.1779, -0.0721),
          row(second, 512, 768, 4.5, 0.0625, nullptr, nullptr, nullptr)};
}

inline nlohmann::json small_calibration() {
  using nlohmann::json;
  return {
      {"kind", "calibration"},
      {"version", 1},
      {"model", "small"},
      {"rope", {{"text", "yarn:4"}, {"parameters", {{"rope_type", "yarn"}, {"factor", 4.0}}}}},
      {"trained_length", 8192},
      {"measured_log_gains", {{0.25, 0.25}, {0.25, 0.25}}},
      {"kept", true},
      {"rule", "scaled(gain=1.284025)"},
      {"entropy",
       {{"before", {{1.0, 2.0}, {3.0, 2.0}}},
        {"stretched", {{1.5, 2.5}, {3.5, 2.5}}},
        {"calibrated", {{1.0, 2.0}, {3.5, 2.0}}}}},
      {"heads",
       {{"slope", {{0.5, nullptr}, {1.0, 0.0}}},
        {"kind", json::array({json::array({"local", "global"}), json::array({"sink", "local"})})}}},
      {"nll", small_losses("no gain", "one gain")}};
}

inline nlohmann::json small_evaluation() {
  return {{"kind", "evaluation"},
          {"version", 1},
          {"model", "small"},
          {"text", "novel.txt"},
          {"rope", "linear:2"},
          {"passages", 3},
          {"nll", small_losses("standard", "scaled(1.1)")},
          {"retrieval",
           {{{"method", "standard"}, {"distance", {100, 200}}, {"nll", {1.75, 2.375}}},
            {{"method", "scaled(1.1)"}, {"distance", {100, 200}}, {"nll", {1.5, 2.625}}}}}};
}

// Returns an inspection of one layer of two heads, with rows of 2 and of 16 keys; one has a window.
inline nlohmann::json small_inspection(const std::string& rule) {
  const nlohmann::json values = {{{0.5, 1.5}, {0.625, nullptr}}};
  return {{"kind", "inspection"},
          {"version", 2},
          {"model", "small"},
          {"rule", {{"rule", rule}}},
          {"texts", 2},
          {"tokens", 34},
          {"n", {2, 16}},
          {"n_of_head", {{{2, 16}, {3, nullptr}}}},
          {"mean",
           {{"entropy", values},
            {"effective_keys", values},
            {"max_logit", values},
            {"gradient_mass", values},
            {"distance", values}}},
          {"spread", {{"entropy", values}}},
          {"sink", {{0.75, 0.25}}},
          {"received",
           {{"positions", {1, 2, 3.5}}, {"mean", {{{8.0, 2.0, 1.0}, {4.0, 3.0, nullptr}}}}}},
          {"collapsed", nlohmann::json::array()},
          {"blurred", nlohmann::json::array()},
          {"suggestion", nullptr}};
}

// Returns a demo document for docs/results/study.json, a cell's first seed being its training.
inline nlohmann::json small_demo(const nlohmann::json& study) {
  using nlohmann::json;
  json cell = study.at("cells").at("rope-bert-500"), records = json::array();
  for (const json& record : cell.at("records")) {
    const bool pair =
        record.at("rule") == "standard" || record.at("rule") == "entropy_invariant(base=512)";
    if (pair && record.at("seed") == 1) records.push_back(record);
  }
  cell["records"] = records;
  json calibration = small_calibration();
  calibration.update({{"log_gain", 0.25}, {"measured_on", 1024}});
  return {{"kind", "demo"},
          {"version", 1},
          {"machine", "a processor"},
          {"date", "2026-01-01"},
          {"heads", {small_inspection("standard"), small_inspection("logn(train_len=8)")}},
          {"stretched", calibration},
          {"training", {{"kind", "study"}, {"cells", {{"rope-bert-500", cell}}}}},
          {"study", study},
          {"cost",
           {{"heads", 8},
            {"dim", 64},
            {"threads", 2},
            {"rounds", 3},
            {"lengths", {512, 1024}},
            {"difference", 2e-6},
            {"seconds", {{"ours", {{0.003, 0.002, 0.004}, {0.01, 0.012, 0.011}}}}}}}};
}

}  // namespace isentrope::report
