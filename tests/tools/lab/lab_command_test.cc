// isentrope extrapolate, run as a program: what it trains, writes and prints.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>

#include "isentrope/scale_rule.h"
#include "tests/support/extrapolate.h"
#include "tools/analysis/differences.h"
#include "tools/lab/corpus.h"
#include "tools/lab/tokenizer.h"

namespace isentrope::lab {
namespace {

TEST_F(Extrapolate, WritesWhatTheSchemaSays) {
  const Outcome outcome = run({"--seeds", "2"});
  EXPECT_EQ(outcome.out.find("Leads over standard"), 0U) << outcome.out;
  expect_words(outcome.out, {"entropy_invariant(base=8) on the model of standard",
                             (out() / "result.json").string(), (out() / "report.html").string()});
  expect_words(outcome.err, {"standard, seed 1: step 20 of 20, loss"});
  EXPECT_EQ(outcome.err.find('\r'), std::string::npos);

  expect_words(read_file(out() / "report.html"), {"<html"});
  const json r = result();
  EXPECT_EQ(r["schema"], 3);
  EXPECT_EQ(r["lengths"], (json{8, 32}));
  EXPECT_EQ(r["protocol"]["part"], "validation");
  EXPECT_EQ(r["config"]["seeds"], 2);
  EXPECT_EQ(r["config"]["positions"], "rope");
  EXPECT_EQ(r["corpus"]["tokenizer"], "bytes");
  EXPECT_EQ(r["corpus"]["tokens"].get<int>(), r["corpus"]["training_tokens"].get<int>() +
                                                  r["corpus"]["validation_tokens"].get<int>() +
                                                  r["corpus"]["test_tokens"].get<int>());
  EXPECT_GT(r["evaluation"]["predictions"]["32"], 15);
  EXPECT_TRUE(r["machine"]["cpu"].is_string());
  ASSERT_EQ(r["rules"].size(), 5U);  // two trained, one rescaled, two with near keys only
  for (const json& rule : r["rules"]) {
    for (const char* measure :
         {"accuracy", "cross_entropy", "entropy", "gradient_mass", "distance", "share_beyond"}) {
      EXPECT_TRUE(rule[measure]["8"].is_number()) << measure;
      EXPECT_TRUE(rule["spread"][measure]["32"].is_number()) << measure;
    }
    EXPECT_EQ(rule["seeds"].size(), 2U);
    EXPECT_EQ(rule.contains("loss"), rule["kind"] == "trained");
  }
  EXPECT_EQ(r["rules"][0]["rule"], "standard");
  EXPECT_EQ(r["rules"][0]["loss"].size(), 20U);
  EXPECT_GT(r["rules"][0]["seconds_per_step"], 0);
  EXPECT_EQ(r["gains"]["accuracy"]["32"].size(), r["gains"]["gain"].size());
  EXPECT_NEAR(r["gains"]["of_rules"]["entropy_invariant(base=8)"]["32"].get<double>(), 5.0 / 3,
              1e-12);
  EXPECT_EQ(weights(out() / "models").size() % 4, 0U);
}

// analysis_differences_test.cc has what leads of records are.
TEST_F(Extrapolate, LeadsAreThoseOfTheRecords) {
  run({"--seeds", "3", "--rules", "standard,log_length"});
  std::vector<json> records;
  for (const int seed : {1, 2, 3}) {
    for (const char* rule : {"standard", "log_length"})
      records.push_back(
          json::parse(read_file(out() / "models" / fmt::format("{}-seed{}.json", rule, seed))));
  }
  const auto lines = [](const json& leads) {
    std::multiset<std::string> all;
    for (const json& lead : leads) all.insert(lead.dump());
    return all;
  };
  const auto written = lines(result()["leads"]);
  EXPECT_EQ(written.size(), 16U);  // four rows, two metrics, two lengths
  EXPECT_EQ(written, lines(analysis::leads_json(analysis::exploratory_leads(records))));
}

// Every position scheme and objective learns from a small text and writes its result. Rules start
// from the same weights on the same batches, so first losses agree where scales do.
TEST_F(Extrapolate, TrainsEveryModel) {
  const std::string rules = "standard,entropy_invariant(base=8)";
  for (const char* shape : {"roformer", "modern"}) {
    for (const char* positions : {"rope", "rope-partial", "t5", "alibi", "none"}) {
      for (const char* objective : {"mlm", "causal"}) {
        SCOPED_TRACE(fmt::format("{} {} {}", shape, positions, objective));
        run({"--model", shape, "--positions", positions, "--objective", objective, "--rules", rules,
             "--init", "pytorch", "--learning-rate", "1e-2", "--steps", "40", "--overwrite"});
        const json r = result();
        const json &standard = r["rules"][0], &invariant = r["rules"][1];
        EXPECT_LT(standard["cross_entropy"]["8"], 5.2);  // ln 257 = 5.55 before training
        EXPECT_GT(standard["share_beyond"]["32"], 0);
        EXPECT_EQ(standard["share_beyond"]["8"], 0);
        EXPECT_EQ(standard.contains("bits_per_byte"), std::string(objective) == "causal");
        const double first = standard["loss"][0], other = invariant["loss"][0];
        // Rows of 8 keys have one scale under both rules; causal rows before the eighth do not.
        EXPECT_NEAR(first, other, std::string(objective) == "mlm" ? 1e-6 : 0.1);
      }
    }
  }
}

TEST_F(Extrapolate, LearnsFactorsAndDropsOut) {
  run({"--rules", "standard,learned(ssmax)", "--dropout", "0.1", "--steps", "40"});
  bool moved = false;
  for (const auto& [name, tensor] : weights(out() / "models")) {
    if (name.find("model.layers.0.factor") != std::string::npos)
      moved = !tensor.eq(1).all().item<bool>();
  }
  EXPECT_TRUE(moved);
}

TEST_F(Extrapolate, PrintsTheResultAsJson) {
  const Outcome outcome = run({"--json", "--quiet"});
  EXPECT_EQ(outcome.err, "");
  EXPECT_EQ(json::parse(outcome.out), result());
}

TEST_F(Extrapolate, TakesEveryRule) {
  run({"--rules", "all", "--steps", "2"});
  std::size_t trained = 0;
  const json written = result();
  for (const json& row : written["rules"]) trained += row["kind"] == "trained";
  EXPECT_EQ(trained, ScaleRule::all().size());
}

TEST_F(Extrapolate, ShowsHelp) {
  const Outcome outcome = run_command({ISENTROPE_EXTRAPOLATE, "--help"});
  EXPECT_EQ(outcome.code, 0);
  expect_words(outcome.out, {"--learning-rate"});
}

TEST_F(Extrapolate, TrainsATokenizer) {
  // Only the last tenth has these words: the test text must not influence the pieces.
  std::string content = make_text(30000);
  while (content.size() < 33000) content += "unheard quagga\n";
  const auto corpus = text("long.txt", content).string();
  run({"--corpus", corpus, "--vocabulary", "285"});
  EXPECT_EQ(result()["corpus"]["tokenizer"], "sentencepiece");
  EXPECT_EQ(result()["corpus"]["vocabulary"], 286);
  const std::string model = read_file(out() / "models/tokenizer.model");
  EXPECT_EQ(model, train_tokenizer(split_text(content).training, 285)->model());
  EXPECT_NE(model, train_tokenizer(content, 285)->model());
  fs::copy_file(out() / "models/tokenizer.model", out().string() + ".model");
  run({"--corpus", corpus, "--tokenizer", out().string() + ".model", "--overwrite"});
}

}  // namespace
}  // namespace isentrope::lab
