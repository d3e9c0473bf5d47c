#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "isentrope/error.h"
#include "tests/support/html.h"
#include "tests/support/message_of.h"
#include "tests/support/results.h"
#include "tools/analysis/records.h"
#include "tools/report/extrapolation_charts.h"
#include "tools/report/line_chart.h"
#include "tools/report/pages.h"
#include "tools/report/result.h"
#include "tools/report/study.h"
#include "tools/report/verdict_words.h"

namespace isentrope::report {
namespace {

using nlohmann::json;

json sample() { return json::parse(std::ifstream(RESULT_JSON)); }
json bench_sample() { return json::parse(std::ifstream(BENCH_JSON)); }
json study_sample() { return json::parse(std::ifstream(STUDY_JSON)); }

std::string message_of(const json& document,
                       std::string (*report)(const json&) = extrapolation_report) {
  return isentrope::message_of([&] { return report(document); });
}

TEST(BenchReport, HoldsEveryRowAndTheRoofline) {
  const json bench = bench_sample();
  const std::string html = own_part(bench_report(bench));
  for (const json& row : bench["runs"][0]["rows"])
    expect_words(html, {row["work"]["name"], decimal(row["ratio"].get<double>(), 2)});
  expect_words(html, {"Roofline", bench["machine"]});
}

TEST(BenchReport, SaysWhatIsWrong) {
  json bench = bench_sample();
  bench["runs"][0]["rows"][0].erase("systems");
  EXPECT_THROW(static_cast<void>(bench_report(bench)), Error);
  bench = bench_sample();
  bench["runs"][0]["target"] = "AVX9";
  bench["limits"]["targets"] = {{{"target", "AVX2"}}, {{"target", "SSE4"}}};
  EXPECT_EQ(message_of(bench, bench_report),
            R"([bench_report] limits must have the target "AVX9"; got ["AVX2","SSE4"])");
  bench["runs"][0]["rows"][0]["systems"] = {{{"name", "torch"}}};
  EXPECT_EQ(message_of(bench, bench_report),
            R"([bench_report] every row must have the system isentrope; got ["torch"])");
}

TEST(MonitorReport, DrawsHeadsBySteps) {
  const std::string row =
      R"({"step": 100, "module": "layers.0", "layer": 0, "head": 1, "entropy": 1.25,
          "spread": 0.5, "max_logit": 31.5, "max_probability": 0.75})";
  std::string line = row;
  std::erase(line, '\n');
  const std::string first = R"({"step": 0)" + line.substr(line.find(", \"module"));
  const std::string html =
      monitor_report(monitor_document("run.jsonl", first + "\n" + line + "\n"));
  expect_words(html, {"1 modules, 1 heads, 2 steps from 0 to 100", "layers.0",
                      "step 100, layer.head 0.1: entropy 1.25",
                      "step 0, layer.head 0.1: largest logit 31.5"});
  EXPECT_THROW(static_cast<void>(monitor_report(monitor_document("run.jsonl", ""))), Error);
  EXPECT_THROW(static_cast<void>(monitor_report(monitor_document("run.jsonl", "{}\n"))), Error);
  EXPECT_THROW(static_cast<void>(monitor_document("run.jsonl", line + "\n{")), Error);
}

TEST(MonitorReport, DrawsTheLinesOfTheGgmlBackend) {
  const std::string line =
      R"({"module":"cache_k_l3","layer":3,"head":2,"step":1,"tokens":512,"keys":256.5,)"
      R"("entropy":2.5,"max_logit":12,"first_key_weight":0.625})";
  const std::string html = monitor_report(monitor_document("heads.jsonl", line + "\n"));
  expect_words(html,
               {"1 modules, 1 heads, 1 steps from 1 to 1", "step 1, layer.head 3.2: entropy 2.50",
                "step 1, layer.head 3.2: weight of the first key 0.625"});
  EXPECT_FALSE(has(html, "Largest probability"));
}

// Minus signs are true ones; a dash stands for an undefined error of one block or passage.
const std::vector<std::string> kLosses = {">3.2500<", ">3.1250<",   ">\u22120.1250<",
                                          ">0.0312<", ">4.5000<",   ">+0.0625<",
                                          ">\u2013<", "512 to 768", "[\u22120.1779, \u22120.0721]"};

TEST(CalibrationReport, HoldsGainVerdictLossesAndHeads) {
  const std::string html = own_part(calibration_report(small_calibration()));
  expect_words(
      html, {"Calibration of small", "RoPE stretched by yarn:4, trained on 8192 tokens", "e^0.2500",
             "kept: better by a t test", "2.000", "+0.500", "+0.125", "local", "sink", "+1.000"});
  expect_words(html, kLosses);
  json document = small_calibration();
  document["kept"] = false;
  EXPECT_TRUE(has(calibration_report(document), "not kept: no better by a t test"));
  document["nll"][0]["passages"] = 2;
  EXPECT_TRUE(has(calibration_report(document), "undecided: the t test takes three"));
  document["nll"] = json::array();
  const std::string without = own_part(calibration_report(document));
  EXPECT_TRUE(has(without, "not judged: no text was held out"));
  EXPECT_FALSE(has(without, "Nats a token"));
}

TEST(EvaluationReport, HoldsLossesAndAnswers) {
  json document = small_evaluation();
  const std::string html = own_part(evaluation_report(document));
  expect_words(html,
               {"Loss by position of small", "3 passages of novel.txt, RoPE stretched by linear:2",
                "Retrieval", "scaled<wbr>(1.1)", ">1.75<", ">2.38<"});
  expect_words(html, kLosses);
  document.erase("retrieval");
  EXPECT_FALSE(has(evaluation_report(document), "Retrieval"));
}

TEST(ExtrapolationReport, HoldsTheNumbersOfTheRunAndOfTheSource) {
  const std::string html = extrapolation_report(sample());
  expect_words(own_part(html),
               {"55.60", "± 0.66", "50.30", "43.27", "36.53", "23.02", "15.12", "11.54", "43.11",
                "41.17", "34.04", "20.15", "13.58", "0.1285", "6.93", "4,205,742",
                "entropy_invariant(base=64) on the model of standard", "standard, near keys only"});
  expect_words(html, {"<strong>55.60</strong>",  // the best of all rows, near keys included
                      "isentrope extrapolate --corpus data/king-james.txt"});
  EXPECT_EQ(count(html, "<figure>"), 8);
}

// Each lead is in the table with its interval and verdict, and in words at the top.
TEST(ExtrapolationReport, SaysWhatTheLeadsSay) {
  json document = sample();
  document["leads"][0].update(
      {{"mean", 1.23}, {"low", 0.14}, {"high", 2.32}, {"verdict", "helps"}});
  const std::string html = own_part(extrapolation_report(document));
  EXPECT_TRUE(has(html, "+1.2 [0.1, 2.3]"));
  for (const json& lead : document["leads"])
    EXPECT_TRUE(has(html, signed_decimal(lead["mean"], lead["metric"] == "accuracy" ? 1 : 3)));
  const auto sentences = verdict_sentences(parse_leads(document["leads"]));
  EXPECT_TRUE(has(sentences.front(), "helps at 64 (+1.2 [0.1, 2.3]), hurts nowhere"));
  for (const std::string& sentence : sentences) expect_words(html, {escape(sentence)});
}

// A record with two lengths of a model of 16 dimensions, and a curve at each.
json curve_record() {
  json rows = json::array();
  for (const auto& [rule, kind] : {std::pair{"standard", "trained"},
                                   {"entropy_invariant(base=64)", "rescaled"},
                                   {"logn(train_len=64)", "rescaled"},
                                   {"log_length", "trained"},
                                   {"learned(ssmax(s=0.43,b=0))", "trained"},
                                   {"inverse_dim", "near"}}) {
    rows.push_back(
        {{"rule", rule}, {"kind", kind}, {"accuracy", {50, 30}}, {"cross_entropy", {1, 2}}});
  }
  return {{"seed", 1},
          {"parameters", 1000},
          {"seconds_per_step", 0.1},
          {"configuration",
           {{"width", 32}, {"heads", 2}, {"train_length", 64}, {"objective", "causal"}}},
          {"evaluation", {{"lengths", {64, 1024}}}},
          {"rows", rows},
          {"gains",
           {{"gain", {1, 2}},
            {"accuracy", {{50, 40}, {30, 60}}},
            {"cross_entropy", {{1, 2}, {2, 1}}}}}};
}

TEST(Records, SayWhereEachRuleIsOnTheCurves) {
  const json gains = analysis::gains_json({curve_record()})["of_rules"];
  ASSERT_EQ(gains.size(), 3U) << gains;
  EXPECT_EQ(gains["entropy_invariant(base=64)"]["64"], 1);
  EXPECT_NEAR(gains["logn(train_len=64)"]["1024"].get<double>(), 5.0 / 3, 1e-12);
  EXPECT_NEAR(gains["log_length"]["64"].get<double>(), std::log(64), 1e-12);
}

// Rules with equal gains everywhere share a mark; a rule outside the curve has none.
TEST(StudyReport, MarksTheGainsOfTheRules) {
  const LineChart chart = gain_chart(cell_result({curve_record()}));
  ASSERT_EQ(chart.series.size(), 3U);
  const Series& mark = chart.series[2];
  EXPECT_TRUE(mark.reference);
  expect_words(mark.name.html(), {"(base=64)", "len=64)"});
  ASSERT_EQ(mark.x.size(), 2U);
  EXPECT_EQ(mark.x[0], 1);
  EXPECT_EQ(mark.y[0], 50);
  EXPECT_NEAR(mark.x[1], 5.0 / 3, 1e-12);
  EXPECT_NEAR(mark.y[1], 30 + 30 * std::log2(5.0 / 3), 1e-9);
}

TEST(StudyReport, RefusesAModelWithoutAWidth) {
  json record = curve_record();
  record["configuration"]["heads"] = 0;
  EXPECT_THROW((void)analysis::gains_json({record}), Error);
}

TEST(StudyReport, BeginsWithAnOverviewAndTheClearestCell) {
  const analysis::Study study = analysis::read_study(study_sample());
  const std::vector<std::size_t> cells = cells_by_result(study);
  EXPECT_EQ(cells.size(), study.cells.size());
  const auto helps = [&](std::size_t cell) {
    return std::ranges::any_of(study.leads[cell], [](const analysis::Lead& lead) {
      return lead.metric == "accuracy" && !hides_far_keys(lead.kind) &&
             lead.verdict == analysis::Verdict::helps;
    });
  };
  EXPECT_TRUE(std::ranges::is_partitioned(cells, helps));
  EXPECT_TRUE(helps(cells.front()));
  const Plot overview = overview_plot(study, cells);
  EXPECT_EQ(overview.spec["scales"][1]["domain"].front(), study.cells[cells.front()].name);
  EXPECT_EQ(overview.numbers.groups.size(), cells.size());
  const std::string html = own_part(study_report(study_sample()));
  EXPECT_LT(html.find("Every cell at n = 1024"), html.find("<h2>"));
}

TEST(DemoReport, HoldsItsFourPartsAndTheStudyBesideThem) {
  const std::string html = own_part(demo_report(small_demo(study_sample())));
  expect_words(html, {"a processor", "logn<wbr>(train_<wbr>len=8)", ">0.56<", "e^0.250",
                      ">−0.1250<", "undecided (fewer than 3 seeds)", "this run has 1, the study 5",
                      ">3.00<", ">11.00<", "2e-06"});
  const analysis::Study study = analysis::read_study(study_sample());
  const auto cell = std::ranges::find(study.cells, "rope-bert-500", &analysis::Cell::name);
  for (const analysis::Lead& lead : study.leads[cell - study.cells.begin()]) {
    if (lead.metric != "accuracy" || lead.rule != "entropy_invariant(base=512)") continue;
    expect_words(html, {lead_words(lead)});
  }
}

TEST(DemoReport, SaysWhatIsWrong) {
  json document = small_demo(study_sample());
  document["study"]["cells"].erase("rope-bert-500");
  EXPECT_THROW((void)demo_report(document), Error);
  for (const char* member : {"heads", "stretched", "training", "study", "cost", "machine"}) {
    document = small_demo(study_sample());
    document.erase(member);
    EXPECT_THROW((void)demo_report(document), Error) << member;
    document[member] = json::array();
    EXPECT_THROW((void)demo_report(document), Error) << member;
  }
}

// Rows of a causal model see 1 ... n keys, and no token is masked.
TEST(ExtrapolationReport, SpeaksOfCausalModelsAsTheyAre) {
  EXPECT_NEAR(analysis::uniform_entropy(3, true), (std::log(2) + std::log(3)) / 3, 1e-12);
  EXPECT_NEAR(analysis::uniform_entropy(3, false), std::log(3), 1e-15);
  json document = sample();
  document["config"]["objective"] = "causal";
  const Result result = parse_result(document);
  EXPECT_EQ(result.uniform_entropy().at(64), analysis::uniform_entropy(64, true));
  const std::string html = own_part(extrapolation_report(document));
  EXPECT_TRUE(has(html, "Tokens to predict"));
  EXPECT_FALSE(has(html, "asked"));
}

TEST(ExtrapolationReport, LoadsNothing) {
  const std::string html = extrapolation_report(sample());
  const std::string own = own_part(html);
  EXPECT_TRUE(has(own, "default-src 'none'"));
  for (const char* loader : {" src=", "<link", "<img", "@import", "url(", "sourceMappingURL"}) {
    EXPECT_FALSE(has(own, loader)) << loader;
  }
  // Every URL is a link that readers may follow.
  EXPECT_EQ(count(own, "http"), count(own, "<a href=\"http") + count(own, "http-equiv"));
  RecordProperty("bytes", static_cast<int>(html.size()));
  EXPECT_LT(html.size(), 700000U);
}

TEST(ExtrapolationReport, TakesTheSmallestDocument) {
  const std::string html = extrapolation_report(
      json::parse(R"({"lengths": [64], "rules": [{"rule": "standard", "accuracy": {"64": 50}}]})"));
  EXPECT_EQ(count(html, "<figure>"), 1);
  EXPECT_FALSE(has(html, "Configuration"));
  EXPECT_FALSE(has(html, "How to reproduce"));
  EXPECT_TRUE(has(html, "50.00"));
}

TEST(ExtrapolationReport, LeavesOutWhatIsMissing) {
  for (const char* key : {"loss", "entropy", "gradient_mass", "accuracy", "spread", "seeds",
                          "seconds_per_step", "distance", "share_beyond"}) {
    json document = sample();
    for (json& rule : document["rules"]) rule.erase(key);
    EXPECT_NO_THROW((void)extrapolation_report(document)) << key;
    document = sample();
    document["rules"][1][key] = nullptr;
    EXPECT_NO_THROW((void)extrapolation_report(document)) << key;
  }
  for (const char* key : {"schema", "program", "version", "command", "date", "train_length",
                          "config", "corpus", "machine", "leads", "gains"}) {
    json document = sample();
    document.erase(key);
    EXPECT_NO_THROW((void)extrapolation_report(document)) << key;
  }
  json document = sample();
  document["rules"][0]["accuracy"].erase("1024");
  document["rules"][1]["loss"][3] = nullptr;
  EXPECT_TRUE(has(extrapolation_report(document), "<td>–</td>"));
}

TEST(ExtrapolationReport, NamesTheKeyThatIsWrong) {
  struct Wrong {
    const char* pointer;
    json value;
    const char* key;
  };
  const Wrong wrongs[] = {
      {"/lengths", json::array(), "lengths"},
      {"/lengths/1", -5, "lengths[1]"},
      {"/lengths/2", 1.5, "lengths[2]"},
      {"/rules", json::array(), "rules"},
      {"/rules", "standard", "rules"},
      {"/rules/1/rule", 7, "rules[1].rule"},
      {"/rules/0/accuracy", 55.9, "rules[0].accuracy"},
      {"/rules/0/accuracy", json{{"sixty-four", 1}}, "rules[0].accuracy"},
      {"/rules/1/entropy/64", "high", "rules[1].entropy.64"},
      {"/rules/0/loss", "low", "rules[0].loss"},
      {"/rules/1/spread", 1, "rules[1].spread"},
      {"/rules/1/spread/entropy", 1, "rules[1].spread.entropy"},
      {"/rules/0/seeds/1", 3, "rules[0].seeds[1]"},
      {"/rules/0/seconds_per_step", "slow", "rules[0].seconds_per_step"},
      {"/rules/0/kind", 1, "rules[0].kind"},
      {"/leads", 1, "leads"},
      {"/leads/0/verdict", "perhaps", "leads[0].verdict"},
      {"/leads/0/also", json::array({1}), "leads[0].also[0]"},
      {"/leads/0/low", "none", "leads[0].low"},
      {"/gains/gain", 1, "gains.gain"},
      {"/gains/accuracy/64", json::array({1}), "gains.accuracy.64"},
      {"/config", json::array({1}), "config"},
      {"/command", 1, "command"},
      {"/schema", 1, "schema"},
      {"/train_length", 0, "train_length"},
  };
  for (const Wrong& wrong : wrongs) {
    json document = sample();
    document[json::json_pointer(wrong.pointer)] = wrong.value;
    expect_words(message_of(document),
                 {std::string("[extrapolation_report] ") + wrong.key + " must be "});
  }
  EXPECT_TRUE(has(message_of(json::array()), "must be an object"));
}

TEST(ExtrapolationReport, HostileStringsStayText) {
  const std::string hostile = "</script><script>alert(1)</script><img src=x>";
  json document = sample();
  document["rules"][1]["rule"] = hostile;
  document["command"] = hostile;
  document["config"][hostile] = hostile;
  document["corpus"]["files"] = json::array({hostile, json::object({{"path", hostile}})});
  const std::string html = extrapolation_report(document);
  EXPECT_EQ(count(html, "<script>"), 3);
  EXPECT_FALSE(has(own_part(html), "<img"));
}

}  // namespace
}  // namespace isentrope::report
