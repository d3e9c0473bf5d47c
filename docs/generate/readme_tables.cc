// Tables of README.md: the demo's result and a few rules side by side.

#include <fmt/core.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "docs/generate/tables.h"
#include "isentrope/scale_rule.h"

namespace isentrope::docs {
namespace {

using nlohmann::json;

// What the note that the experiment comes from measured, with a larger model on Chinese text.
constexpr const char* kPublished[][6] = {
    {"*Su 2021, theirs:* `standard`", "43.27", "36.53", "23.02", "15.12", "11.54"},
    {"*Su 2021, theirs:* `entropy_invariant`", "43.11", "41.17", "34.04", "20.15", "13.58"}};

std::string extrapolation_table(const std::filesystem::path& result_file) {
  const json result = json::parse(std::ifstream(result_file));
  Rows rows = {{"scale"}};
  for (const json& length : result.at("lengths")) {
    rows.front().push_back(fmt::format("n = {}", length.get<std::int64_t>()));
  }
  for (const json& rule : result.at("rules")) {
    rows.push_back({fmt::format("`{}`", rule.at("rule").get<std::string>())});
    for (const json& length : result.at("lengths")) {
      const std::string key = std::to_string(length.get<std::int64_t>());
      rows.back().push_back(fmt::format("{:.2f}", rule.at("accuracy").at(key).get<double>()));
    }
  }
  for (const auto& row : kPublished) rows.emplace_back(std::begin(row), std::end(row));
  return markdown_table(rows);
}

std::string scale_table() {
  const ScaleRule rules[] = {ScaleRule::standard(), ScaleRule::entropy_invariant(512),
                             ScaleRule::logn(512), ScaleRule::log_length()};
  Rows rows = {{"n"}};
  for (const ScaleRule& rule : rules) rows.front().push_back(fmt::format("`{}`", rule.text()));
  for (const std::int64_t n : {64, 512, 4096, 32768}) {
    rows.push_back({std::to_string(n)});
    for (const ScaleRule& rule : rules) {
      rows.back().push_back(fmt::format("{:.4f}", rule.lambda({n, n - 1, n}, 64)));
    }
  }
  return markdown_table(rows);
}

}  // namespace

std::map<std::string, std::string> readme_tables(const std::filesystem::path& docs) {
  return {{"bench", bench_table(docs / "results/bench.json")},
          {"extrapolation", extrapolation_table(docs / "results/demo.json")},
          {"scale", scale_table()}};
}

}  // namespace isentrope::docs
