// Files of experiments: their declared tests must be covered by their planned trainings.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "tools/lab/options.h"

namespace isentrope::lab {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::int64_t kFewestSeeds = 4;

std::vector<json> experiments() {
  std::vector<json> plans;
  for (const auto& entry : fs::directory_iterator(EXPERIMENTS))
    plans.push_back(json::parse(std::ifstream(entry.path())));
  return plans;
}

CommandLine command_of(const json& plan, const std::string& cell) {
  std::vector<std::string> words = {"isentrope extrapolate"};
  std::istringstream text(plan.at("common").get<std::string>() + " " +
                          plan.at("cells").at(cell).get<std::string>());
  for (std::string word; text >> word;) words.push_back(word);
  std::vector<const char*> arguments;
  for (const std::string& word : words) arguments.push_back(word.c_str());
  return parse_command_line(static_cast<int>(arguments.size()), arguments.data()).value();
}

// Returns the rules by their names in records.
std::set<std::string> rules_of(const json& plan, const std::string& cell) {
  std::set<std::string> rules;
  for (const json& step : plan.at("order")) {
    if (step.at("cell") != cell) continue;
    for (const ModelRule& rule :
         parse_rules(plan.at("rules").at(step.at("rules")).get<std::string>()))
      rules.insert(rule.text());
  }
  return rules;
}

TEST(Experiments, DeclareWhatTheyAskAndHowItIsJudged) {
  const std::vector<json> plans = experiments();
  ASSERT_GE(plans.size(), 4U);
  for (const json& plan : plans) {
    const json& experiment = plan.at("experiment");
    for (const char* member : {"question", "method", "test", "seeds", "analysis"})
      EXPECT_FALSE(experiment.at(member).get<std::string>().empty());
    EXPECT_FALSE(experiment.at("hypotheses").empty());
    EXPECT_FALSE(plan.at("texts").empty());
    for (const auto& [cell, options] : plan.at("cells").items()) {
      std::int64_t seeds = 0;
      for (const json& step : plan.at("order")) {
        if (step.at("cell") == cell) seeds = std::max<std::int64_t>(seeds, step.at("seeds"));
      }
      EXPECT_GE(seeds, kFewestSeeds) << cell;
    }
  }
}

// Plans with their own trainer are tested with that trainer: tests/python/test_note.py.
TEST(Experiments, MeasureWhatTheirPrimaryFamilyIsOf) {
  for (const json& plan : experiments()) {
    if (plan.contains("trainer")) continue;
    const json& primary = plan.at("experiment").at("primary");
    for (const json& contrast : primary.at("contrasts")) {
      const json& against = contrast.at("against");
      for (const json& side :
           {contrast, json{{"cell", against.value("cell", contrast.at("cell"))},
                           {"rule", against.value("rule", contrast.at("rule"))},
                           {"kind", against.value("kind", contrast.at("kind"))}}}) {
        const std::string cell = side.at("cell"), rule = side.at("rule"), kind = side.at("kind");
        const ExperimentOptions options = command_of(plan, cell).experiment;
        EXPECT_TRUE(rules_of(plan, cell).contains(rule)) << cell << ": " << rule;
        EXPECT_EQ(kind != "trained", options.probes) << cell << ": " << kind;
        EXPECT_EQ(options.part, Part::test);
        for (const std::int64_t length : primary.at("lengths"))
          EXPECT_TRUE(std::ranges::binary_search(options.lengths, length)) << length;
      }
    }
  }
}

}  // namespace
}  // namespace isentrope::lab
