// Leads of rows and their verdicts, against numbers computed here.

#include <gtest/gtest.h>

#include <cmath>

#include "tools/analysis/differences.h"
#include "tools/analysis/records.h"
#include "tools/report/verdict_words.h"

namespace isentrope::analysis {
namespace {

using nlohmann::json;

// Returns a record of one length: its accuracy, and a cross-entropy that decreases with it.
json record(const char* rule, int seed, double accuracy) {
  const json row = {{"rule", rule},
                    {"kind", "trained"},
                    {"accuracy", {accuracy}},
                    {"cross_entropy", {5 - accuracy / 20}}};
  return {{"rule", rule},
          {"seed", seed},
          {"parameters", 10},
          {"seconds_per_step", 0.5},
          {"evaluation", {{"lengths", {64}}, {"bytes_per_token", 1}}},
          {"rows", {row}}};
}

// Returns records of standard and log_length over seeds 1, 2, ...
std::vector<json> pairs(const std::vector<std::pair<double, double>>& accuracies) {
  std::vector<json> records;
  for (int seed = 1; const auto& [standard, other] : accuracies) {
    records.push_back(record("standard", seed, standard));
    records.push_back(record("log_length", seed++, other));
  }
  return records;
}

json lead_of(const std::vector<json>& records, const std::string& metric) {
  for (const json& lead : leads_json(exploratory_leads(records))) {
    if (lead["metric"] == metric) return lead;
  }
  return {};
}

// Differences of 1, 3 and 2: t = 2 sqrt(3) with 2 degrees of freedom. The two-sided p is 1 -
// sqrt(12 / 14), and the quantile 4.3027.
TEST(Leads, ArePairedAndHaveTheirIntervals) {
  const json lead = lead_of(pairs({{50, 51}, {60, 63}, {55, 57}}), "accuracy");
  EXPECT_EQ(lead["rule"], "log_length");
  EXPECT_EQ(lead["against"], "standard");
  EXPECT_EQ(lead["length"], 64);
  EXPECT_EQ(lead["seeds"], 3);
  EXPECT_EQ(lead["df"], 2);
  EXPECT_DOUBLE_EQ(lead["mean"], 2);
  EXPECT_DOUBLE_EQ(lead["sd"], 1);
  EXPECT_DOUBLE_EQ(lead["se"], 1 / std::sqrt(3.0));
  EXPECT_NEAR(lead["low"].get<double>(), 2 - 4.302652729911275 / std::sqrt(3.0), 1e-9);
  EXPECT_NEAR(lead["high"].get<double>(), 2 + 4.302652729911275 / std::sqrt(3.0), 1e-9);
  EXPECT_NEAR(lead["p"].get<double>(), 1 - std::sqrt(12.0 / 14), 1e-9);
  EXPECT_EQ(lead["verdict"], "undecided");  // two standard errors would have decided it
  EXPECT_FALSE(lead.contains("reason"));
}

TEST(Leads, CountSeedsThatBothHave) {
  const json lead = lead_of({record("standard", 1, 50), record("standard", 2, 50),
                             record("log_length", 2, 47), record("log_length", 3, 99)},
                            "accuracy");
  EXPECT_EQ(lead["seeds"], 1);
  EXPECT_DOUBLE_EQ(lead["mean"], -3);
  EXPECT_EQ(lead["verdict"], "undecided");
  EXPECT_EQ(lead["reason"], "fewer than 3 seeds");
}

std::vector<json> losing_records() { return pairs({{50, 41}, {50, 40}, {50, 40.5}}); }

TEST(Leads, MoreCrossEntropyHurts) {
  EXPECT_EQ(lead_of(losing_records(), "cross_entropy")["verdict"], "hurts");
  EXPECT_GT(lead_of(losing_records(), "cross_entropy")["mean"], 0);
  EXPECT_EQ(lead_of(losing_records(), "accuracy")["verdict"], "hurts");
}

TEST(Leads, ThatAreAllEqualAreTheGrainOfTheMeasure) {
  const json lead = lead_of(pairs({{50.3, 50.5}, {60, 60.2}, {55, 55.2}}), "accuracy");
  EXPECT_NEAR(lead["mean"].get<double>(), 0.2, 1e-9);
  EXPECT_EQ(lead["verdict"], "undecided");
  EXPECT_EQ(lead["reason"], "all differences are equal");
}

// A rule with another name and the same numbers is listed with the first, and judged once.
TEST(Leads, OfTheSameNumbersAreOne) {
  // Rules applied to one model come from the same trainings.
  std::vector<json> merged;
  for (const json& record : losing_records()) {
    merged.push_back(record);
    if (record["rule"] != "standard") continue;
    for (const char* rule : {"entropy_invariant(base=64)", "logn(64)"}) {
      json row = record["rows"][0];
      row["rule"] = rule;
      row["kind"] = "rescaled";
      row["accuracy"][0] = row["accuracy"][0].get<double>() + record["seed"].get<int>();
      merged.back()["rows"].push_back(row);
    }
  }
  const std::vector<Lead> leads = exploratory_leads(merged);
  ASSERT_EQ(leads.size(), 4U);  // two rows, two metrics
  ASSERT_EQ(leads[2].also.size(), 1U);
  EXPECT_EQ(leads[2].also[0], (RowName{"logn(64)", "rescaled"}));
  EXPECT_EQ(report::row_name(leads[2]),
            "entropy_invariant(base=64) on the model of standard (and logn(64) on the model of "
            "standard)");
  EXPECT_EQ(rules_json(merged)[2]["also"][0]["rule"], "logn(64)");
}

TEST(Leads, NeedAModelToLeadOver) { EXPECT_TRUE(leads_of({record("log_length", 1, 50)}).empty()); }

// Intervals over blocks of text; seeds are fixed.
TEST(Leads, HaveAnIntervalOfTheText) {
  std::vector<json> records;
  for (int seed = 1; seed <= 3; ++seed) {
    for (const char* rule : {"standard", "log_length"}) {
      json measured = record(rule, seed, 50);
      json right = json::array(), loss = json::array(), predictions = json::array();
      for (int block = 0; block < 64; ++block) {
        const bool standard = measured["rule"] == "standard";
        right.push_back(standard ? 50 : 52 + block % 2);  // 2.5 of 100 more
        loss.push_back(standard ? 300 : 290);             // 0.1 nats less, in every block
        predictions.push_back(100);
      }
      measured["block_predictions"] = {predictions};
      measured["rows"][0]["blocks"] = {{"right", {right}}, {"loss", {loss}}};
      records.push_back(measured);
    }
  }
  for (const json& lead : leads_json(leads_of(records))) {
    if (lead["metric"] == "accuracy") {  // sd 0.5 over a mean of 8 times as many blocks
      EXPECT_NEAR(lead["text"]["low"].get<double>(), 2.5 - 1.96 / 16, 0.03);
      EXPECT_NEAR(lead["text"]["high"].get<double>(), 2.5 + 1.96 / 16, 0.03);
    } else {
      EXPECT_NEAR(lead["text"]["low"].get<double>(), -0.1, 1e-12);
      EXPECT_NEAR(lead["text"]["high"].get<double>(), -0.1, 1e-12);
    }
  }
}

TEST(Verdict, IsPutInWords) {
  const auto sentences = report::verdict_sentences(exploratory_leads(
      {record("standard", 1, 50), record("log_length", 1, 51.1), record("logn", 1, 51),
       record("standard", 2, 60), record("log_length", 2, 61.2), record("logn", 2, 40),
       record("standard", 3, 55), record("log_length", 3, 56.0)}));
  ASSERT_EQ(sentences.size(), 2U);
  EXPECT_EQ(sentences[0],
            "log_length helps at 64 (+1.1 [0.9, 1.3]), hurts nowhere, undecided nowhere.");
  EXPECT_EQ(sentences[1], "logn helps nowhere, hurts nowhere, undecided at 64 (−9.5).");
}

}  // namespace
}  // namespace isentrope::analysis
