// Study: its primary family, leads pooled over cells, and its state before it is complete.

#include <gtest/gtest.h>

#include "isentrope/error.h"
#include "tools/analysis/study.h"

namespace isentrope::analysis {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

ordered_json record(const char* rule, int seed, const std::vector<double>& accuracy) {
  ordered_json row = {{"rule", rule}, {"kind", "trained"}};
  for (const double value : accuracy) {
    row["accuracy"].push_back(value);
    row["cross_entropy"].push_back(5 - value / 20);
  }
  return {{"rule", rule},
          {"seed", seed},
          {"configuration", {{"positions", "rope"}, {"objective", "mlm"}}},
          {"evaluation", {{"lengths", {64, 1024}}}},
          {"rows", {row}}};
}

// Two cells whose rule leads by about 1 and 3 points at 1024, over four seeds.
ordered_json study() {
  ordered_json document = {{"kind", "study"}, {"schema", 1}};
  for (const auto& [cell, gain] : {std::pair{"small", 1.0}, {"large", 3.0}}) {
    ordered_json records = ordered_json::array();
    for (int seed = 1; seed <= 4; ++seed) {
      const double noise = 0.1 * (seed % 3);
      records.push_back(record("standard", seed, {50.0 + seed, 40.0 - seed}));
      records.push_back(
          record("log_length", seed, {50.0 + seed + noise, 40.0 - seed + gain + noise}));
    }
    document["cells"][cell] = {{"options", ""}, {"planned", 8}, {"records", records}};
  }
  return document;
}

ordered_json experiment() {
  ordered_json document = study();
  const ordered_json primary = {{"metric", "accuracy"},
                                {"lengths", {64, 1024}},
                                {"contrasts",
                                 {{{"hypothesis", "gain"},
                                   {"cell", "small"},
                                   {"rule", "log_length"},
                                   {"kind", "trained"},
                                   {"against", {{"rule", "standard"}}}},
                                  {{"hypothesis", "size"},
                                   {"cell", "large"},
                                   {"rule", "log_length"},
                                   {"kind", "trained"},
                                   {"against", {{"cell", "small"}}}}}}};
  document["experiment"] = {{"question", "Does it?"}, {"primary", primary}};
  return document;
}

TEST(Study, WithoutADeclarationIsExploratory) {
  const Study read = read_study(study());
  EXPECT_TRUE(read.primary.empty());
  EXPECT_TRUE(read.question.empty());
  ASSERT_EQ(read.leads.size(), 2U);
  // A family of eight tests.
  for (const std::vector<Lead>& leads : read.leads) {
    for (const Lead& lead : leads) {
      EXPECT_GE(lead.adjusted_p, lead.seeds.p);
      EXPECT_LE(lead.adjusted_p, 8 * lead.seeds.p);
    }
  }
  EXPECT_EQ(read.leads[0][1].verdict, Verdict::helps);
}

TEST(Study, PoolsCellsSeedBySeed) {
  const Study read = read_study(study());
  ASSERT_EQ(read.pooled.size(), 4U);
  EXPECT_EQ(read.pooled[1].cells, (std::vector<std::string>{"small", "large"}));
  const Lead& lead = read.pooled[1].lead;
  EXPECT_EQ(lead.length, 1024);
  EXPECT_EQ(lead.seeds.df(), 3);
  EXPECT_NEAR(lead.seeds.mean, 2 + 0.1, 1e-9);  // noise 0.1, 0.2, 0, 0.1
  EXPECT_NEAR(lead.seeds.sd, 0.0816496581, 1e-9);
  EXPECT_EQ(lead.verdict, Verdict::helps);
}

// Cells with fewer seeds or other positions are not pooled.
TEST(Study, PoolsOnlyWhatIsAlike) {
  ordered_json document = study();
  document["cells"]["t5"] = document["cells"]["small"];
  for (ordered_json& record : document["cells"]["t5"]["records"])
    record["configuration"]["positions"] = "t5";
  document["cells"]["few"] = document["cells"]["small"];
  auto& records = document["cells"]["few"]["records"];
  records.erase(records.begin(), records.begin() + 2);
  const Study read = read_study(document);
  for (const PooledLead& pooled : read.pooled)
    EXPECT_EQ(pooled.cells, (std::vector<std::string>{"small", "large"}));
}

TEST(Study, JudgesWhatWasDeclaredByHolm) {
  const Study read = read_study(experiment());
  ASSERT_EQ(read.primary.size(), 4U);
  const Contrast& gain = read.primary[1];
  EXPECT_EQ(gain.hypothesis, "gain");
  EXPECT_EQ(gain.against.row, (RowName{"standard", "trained"}));
  EXPECT_NEAR(gain.lead.seeds.mean, 1.1, 1e-9);
  EXPECT_EQ(gain.lead.verdict, Verdict::helps);
  // Across cells: 3 - 1 points in every seed, and no difference at 64.
  EXPECT_NEAR(read.primary[3].lead.seeds.mean, 2, 1e-9);
  EXPECT_EQ(read.primary[3].lead.seeds.undecided, "all differences are equal");
  EXPECT_EQ(read.primary[2].lead.verdict, Verdict::undecided);
  // Two tests have a p, so the smaller is doubled.
  EXPECT_NEAR(gain.lead.adjusted_p, 2 * gain.lead.seeds.p, 1e-12);
}

// Its tests do not count in the primary family, nor the other way round.
TEST(Study, JudgesASecondaryFamilyByItself) {
  ordered_json document = experiment();
  document["experiment"]["secondary"] = document["experiment"]["primary"];
  document["experiment"]["secondary"]["contrasts"].erase(1);
  document["experiment"]["secondary"]["lengths"] = {1024};
  const Study read = read_study(document);
  ASSERT_EQ(read.secondary.size(), 1U);
  EXPECT_NEAR(read.secondary[0].lead.adjusted_p, read.secondary[0].lead.seeds.p, 1e-12);
  EXPECT_NEAR(read.primary[1].lead.adjusted_p, 2 * read.primary[1].lead.seeds.p, 1e-12);
}

TEST(Study, CallsNothingBeforeItIsComplete) {
  ordered_json document = experiment();
  document["cells"]["large"]["planned"] = 10;
  const Study read = read_study(document);
  EXPECT_FALSE(read.complete());
  EXPECT_EQ(read.done, 16);
  EXPECT_TRUE(read.pooled.empty());
  for (const Contrast& contrast : read.primary)
    EXPECT_EQ(contrast.lead.verdict, Verdict::undecided);
  for (const std::vector<Lead>& leads : read.leads) {
    for (const Lead& lead : leads) EXPECT_EQ(lead.verdict, Verdict::undecided);
  }
  // A cell without records has no lead and is no error.
  document["cells"]["small"]["records"] = ordered_json::array();
  EXPECT_EQ(read_study(document).primary[0].lead.seeds.pairs, 0);
}

TEST(Study, RefusesWhatItCannotRead) {
  ordered_json wrong = experiment();
  wrong["experiment"]["primary"]["contrasts"][0]["cell"] = "none";
  EXPECT_THROW((void)read_study(wrong), Error);
  wrong = experiment();
  wrong["experiment"]["primary"]["lengths"] = {65};
  EXPECT_THROW((void)read_study(wrong), Error);
  wrong = study();
  wrong["cells"]["small"]["records"][0].erase("rows");
  EXPECT_THROW((void)read_study(wrong), Error);
}

}  // namespace
}  // namespace isentrope::analysis
