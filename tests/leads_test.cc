// Leads and verdicts, against numbers worked out here.

#include "report/leads.h"

#include <gtest/gtest.h>

#include <cmath>

#include "report/records.h"

namespace isentrope::report {
namespace {

using nlohmann::json;

// A record of one length: its accuracy, and a cross-entropy that falls with it.
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

json lead_of(const std::vector<json>& records, const std::string& metric) {
  for (const json& lead : leads_json(leads_of(rules_json(records)))) {
    if (lead["metric"] == metric) return lead;
  }
  return {};
}

TEST(Leads, ArePairedAndHaveTheirErrors) {
  const json lead =
      lead_of({record("standard", 1, 50), record("log_length", 1, 51), record("standard", 2, 60),
               record("log_length", 2, 63), record("standard", 3, 55), record("log_length", 3, 57)},
              "accuracy");
  EXPECT_EQ(lead["rule"], "log_length");
  EXPECT_EQ(lead["against"], "standard");
  EXPECT_EQ(lead["length"], 64);
  EXPECT_EQ(lead["seeds"], 3);
  EXPECT_DOUBLE_EQ(lead["mean"], 2);  // of 1, 3, 2
  EXPECT_DOUBLE_EQ(lead["sd"], 1);
  EXPECT_DOUBLE_EQ(lead["se"], 1 / std::sqrt(3.0));
  EXPECT_EQ(lead["verdict"], "helps");
}

TEST(Leads, CountSeedsThatBothHave) {
  const json lead = lead_of({record("standard", 1, 50), record("standard", 2, 50),
                             record("log_length", 2, 47), record("log_length", 3, 99)},
                            "accuracy");
  EXPECT_EQ(lead["seeds"], 1);
  EXPECT_DOUBLE_EQ(lead["mean"], -3);
  EXPECT_EQ(lead["verdict"], "undecided");
}

TEST(Leads, MoreCrossEntropyHurts) {
  const std::vector<json> records = {record("standard", 1, 50), record("log_length", 1, 41),
                                     record("standard", 2, 50), record("log_length", 2, 40)};
  EXPECT_EQ(lead_of(records, "cross_entropy")["verdict"], "hurts");
  EXPECT_GT(lead_of(records, "cross_entropy")["mean"], 0);
  EXPECT_EQ(lead_of(records, "accuracy")["verdict"], "hurts");
}

TEST(Verdict, TakesTwoSeedsAndTwoErrors) {
  EXPECT_EQ(paired_lead({5}, true).verdict, Verdict::undecided);
  EXPECT_TRUE(std::isnan(paired_lead({5}, true).se));
  EXPECT_EQ(paired_lead({3, 1}, true).verdict, Verdict::undecided);  // 2 is two errors, not beyond
  EXPECT_EQ(paired_lead({3.1, 1.1}, true).verdict, Verdict::helps);
  EXPECT_EQ(paired_lead({-3.1, -1.1}, true).verdict, Verdict::hurts);
  EXPECT_EQ(paired_lead({0, 0}, true).verdict, Verdict::undecided);
  EXPECT_EQ(paired_lead({1, 1}, false).verdict, Verdict::hurts);
}

TEST(Verdict, IsPutInWords) {
  const auto sentences = verdict_sentences(leads_of(rules_json(
      {record("standard", 1, 50), record("log_length", 1, 51.1), record("logn", 1, 51),
       record("standard", 2, 60), record("log_length", 2, 63.1), record("logn", 2, 40)})));
  ASSERT_EQ(sentences.size(), 2U);
  EXPECT_EQ(sentences[0], "log_length helps at 64 (+2.1 ± 1.0), hurts nowhere, undecided nowhere.");
  EXPECT_EQ(sentences[1], "logn helps nowhere, hurts nowhere, undecided at 64 (−9.5 ± 10.5).");
}

TEST(Leads, NeedAModelToLeadOver) {
  EXPECT_TRUE(leads_of(rules_json({record("log_length", 1, 50)})).empty());
}

}  // namespace
}  // namespace isentrope::report
