// Small documents as the Python commands write them.
#pragma once

#include <nlohmann/json.hpp>

namespace isentrope::report {

// Losses of two methods, paired: one bin of several blocks, and one whose errors nothing tells.
inline nlohmann::json small_losses(const char* first, const char* second) {
  return {{{"method", first},
           {"from", 0},
           {"to", 512},
           {"mean", 3.25},
           {"difference", 0.0},
           {"se", 0.0},
           {"se_passages", 0.0}},
          {{"method", second},
           {"from", 0},
           {"to", 512},
           {"mean", 3.125},
           {"difference", -0.125},
           {"se", 0.0312},
           {"se_passages", nullptr}},
          {{"method", second},
           {"from", 512},
           {"to", 768},
           {"mean", 4.5},
           {"difference", 0.0625},
           {"se", nullptr},
           {"se_passages", nullptr}}};
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

}  // namespace isentrope::report
