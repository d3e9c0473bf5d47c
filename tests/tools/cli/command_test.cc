// isentrope scale and isentrope theory, run as programs.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "isentrope/rule_catalogue.h"
#include "isentrope/scale_rule.h"
#include "tests/support/isentrope.h"

namespace isentrope {
namespace {

using nlohmann::json;

json run_json(std::vector<std::string> arguments) {
  arguments.emplace_back("--json");
  const Outcome outcome = run(arguments);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  return json::parse(outcome.out);
}

// Expects a refusal: exit status 2, nothing on stdout, and one line on stderr with the given words.
void expect_refusal(const std::vector<std::string>& arguments,
                    const std::vector<std::string>& words) {
  const Outcome outcome = run(arguments);
  EXPECT_EQ(outcome.code, 2) << outcome.out;
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  EXPECT_TRUE(outcome.err.starts_with("isentrope " + arguments.front() + ": ")) << outcome.err;
  for (const std::string& word : words)
    EXPECT_NE(outcome.err.find(word), std::string::npos) << outcome.err;
}

TEST(ScaleCommand, PrintsLambdaPerLength) {
  const json result =
      run_json({"scale", "entropy_invariant(base=512)", "--dim", "64", "--lengths", "64,512,1024"});
  EXPECT_EQ(result["rule"], "entropy_invariant(base=512)");
  EXPECT_EQ(result["dim"], 64);
  ASSERT_EQ(result["values"].size(), 3);
  EXPECT_NEAR(result["values"][0]["lambda"].get<double>(), 0.08333333333333333, 1e-15);
  EXPECT_EQ(result["values"][1]["lambda"], 0.125);
  EXPECT_EQ(result["values"][2]["n"], 1024);
  EXPECT_NEAR(result["values"][2]["factor"].get<double>(), 10.0 / 9, 1e-14);
}

TEST(ScaleCommand, ComparesAndDraws) {
  const json result =
      run_json({"scale", "standard", "--compare", "log_length", "logn(512)", "--lengths", "512"});
  ASSERT_EQ(result["compare"].size(), 2);
  EXPECT_EQ(result["compare"][1]["rule"], "logn(train_len=512)");
  const Outcome text = run({"scale", "standard", "--compare", "log_length"});
  EXPECT_EQ(text.code, 0);
  EXPECT_NE(text.out.find("65536"), std::string::npos);
  EXPECT_NE(text.out.find("b  log_length"), std::string::npos);
  EXPECT_NE(text.out.find("log_length: length=visible: the paper's"), std::string::npos);
  EXPECT_EQ(run_json({"scale", "logn * dual_chunk(64,length=position)"})["counts"],
            "length=" + std::string(find_rule("logn")->counts) + "; length=position: as given");
}

TEST(ScaleCommand, TakesEveryRule) {
  for (const ScaleRule& rule : ScaleRule::all()) {
    EXPECT_EQ(run_json({"scale", rule.text(), "--lengths", "1,512"})["rule"], rule.text());
  }
  const Outcome list = run({"scale", "--list"});
  EXPECT_EQ(list.code, 0);
  for (const auto name : ScaleRule::names())
    EXPECT_NE(list.out.find(name), std::string::npos) << name;
}

TEST(ScaleCommand, ReadsAModelsConfig) {
  const TemporaryFolder folder;
  const auto path = write_file(folder / "config.json",
                               R"({"model_type": "qwen", "use_logn_attn": true, "seq_length": 2048,
                                   "head_dim": 128})");
  const json result = run_json({"scale", "--config", path.string(), "--lengths", "4096"});
  EXPECT_EQ(result["rule"], "logn(train_len=2048)");
  EXPECT_EQ(result["dim"], 128);
  EXPECT_EQ(result["known"], true);
  EXPECT_EQ(result["model_type"], "qwen");
  EXPECT_EQ(result["keys"], json({"use_logn_attn", "seq_length"}));
  EXPECT_NE(run({"scale", "--config", path.string()}).out.find("key     use_logn_attn"),
            std::string::npos);
}

TEST(ScaleCommand, SaysThatAFamilyIsNotKnown) {
  const TemporaryFolder folder;
  for (const auto& [text, type] :
       {std::pair(R"({"model_type": "made_up", "head_dim": 64})", "made_up"),
        std::pair(R"({"use_logn_attn": true, "seq_length": 64})", ""),
        std::pair(R"({"model_type": "llama gemma2"})", "llama gemma2")}) {
    const auto path = write_file(folder / "config.json", text);
    const Outcome plain = run({"scale", "--config", path.string()});
    EXPECT_EQ(plain.code, 1);
    EXPECT_EQ(plain.out.find("standard"), std::string::npos) << plain.out;
    EXPECT_TRUE(plain.out.starts_with("rule    not known\n")) << plain.out;
    EXPECT_NE(plain.err.find("model_type must be a family whose code was read"), std::string::npos);
    const Outcome printed = run({"scale", "--config", path.string(), "--json"});
    EXPECT_EQ(printed.code, 1);
    const json result = json::parse(printed.out);
    EXPECT_EQ(result["known"], false);
    EXPECT_EQ(result["model_type"], type);
    EXPECT_TRUE(result["rule"].is_null());
    EXPECT_FALSE(result.contains("values"));
  }
}

TEST(ScaleCommand, WritesAPage) {
  const TemporaryFolder folder;
  const auto path = folder / "scale.html";
  EXPECT_EQ(run({"scale", "ssmax", "--compare", "cosine", "--lengths", "16,64,256", "--report",
                 path.string()})
                .code,
            0);
  const std::string page = read_file(path);
  EXPECT_NE(page.find("Softmax scale by length"), std::string::npos);
  EXPECT_NE(page.find("ssmax"), std::string::npos);
}

TEST(ScaleCommand, RefusesBadInput) {
  expect_refusal({"scale"}, {"RULE"});
  expect_refusal({"scale", "entropy_invarant(base=512)"},
                 {"log_length", "did you mean entropy_invariant?"});
  expect_refusal({"scale", "entropy_invariant(base=1)"}, {"base must be above 1", "got base = 1"});
  expect_refusal({"scale", "logn(train_len=nan)"}, {"train_len", "nan"});
  expect_refusal({"scale", "standard", "--dim", "1"}, {"dim must be at least 2", "got dim = 1"});
  expect_refusal({"scale", "standard", "--dim", "0"}, {"got dim = 0"});
  expect_refusal({"scale", "standard", "--dim", "wide"}, {"wide"});
  for (const char* command : {"scale", "theory"}) {
    const std::string digits = "99999999999999999999";
    for (const std::string& value : {digits, "-" + digits}) {
      std::vector<std::string> words = {command};
      if (words[0] == "theory") words.emplace_back("entropy");
      if (words[0] == "scale") words.emplace_back("standard");
      words.insert(words.end(), {"--dim", value});
      expect_refusal(words, {"--dim: a whole number of 64 bits is needed; got \"" + value + "\""});
    }
  }
  expect_refusal({"scale", "standard", "--head", "99999999999999999999"},
                 {"--head: a whole number of 64 bits is needed"});
  for (const char* lengths : {"0", "-3", "1.5", "nan", "", "64,", "5:1:1", "1:5", "1:5:0", "1:2:x1",
                              "1e30", "1:1e12:1"}) {
    expect_refusal({"scale", "standard", "--lengths", lengths}, {"[lengths]"});
  }
  expect_refusal({"scale", "ssmax(s=[1,2])", "--head", "2"}, {"head"});
  expect_refusal({"scale", "--config", "/nowhere/config.json"}, {"/nowhere/config.json"});
  expect_refusal({"scale", "standard", "--report", "/nowhere/page.html"}, {"/nowhere/page.html"});
  expect_refusal({"scale", "standard", "--unknown"}, {"--unknown"});
}

TEST(TheoryCommand, Gradient) {
  const json cosine = run_json(
      {"theory", "gradient", "--scores", "cosine", "--dim", "128", "--lengths", "40:20000:40"});
  EXPECT_EQ(cosine["scores"], "cosine");
  EXPECT_EQ(cosine["dim"], 128);
  ASSERT_EQ(cosine["values"].size(), 500);
  EXPECT_EQ(cosine["values"][0]["n"], 40);
  EXPECT_NEAR(cosine["values"][499]["alpha"].get<double>(), 33.68382484182837, 1e-10);
  EXPECT_EQ(cosine["fit"]["form"], "c ln n");
  EXPECT_NEAR(cosine["fit"]["c"].get<double>(), 3.4876913654682142, 1e-8);
  const json normal =
      run_json({"theory", "gradient", "--scores", "normal", "--lengths", "40:20000:40"});
  EXPECT_EQ(normal["fit"]["form"], "c sqrt(ln n)");
  EXPECT_NEAR(normal["fit"]["c"].get<double>(), 0.8413457247205173, 1e-9);
  const json coefficients = run_json({"theory", "gradient", "--dims", "64,128"});
  EXPECT_NEAR(coefficients["values"][1]["c"].get<double>(), 3.4876913654682142, 1e-8);
  const json rules = run_json(
      {"theory", "gradient", "--rule", "log_length", "--dim", "64", "--lengths", "20,65536"});
  EXPECT_GT(rules["rules"][0]["values"][1]["starved"], 0.1);
  EXPECT_LT(rules["rules"][0]["values"][1]["annealed"], 0);
}

// Ranges stated by the notes: the lengths whose optimal alphas are in an interval.
TEST(TheoryCommand, LengthsBetweenTwoOptima) {
  const json normal = run_json({"theory", "gradient", "--between", "3,2"});
  EXPECT_EQ(normal["alpha"], (json{2, 3}));
  EXPECT_NEAR(normal["n"][0].get<double>(), 491.383, 1e-3);
  EXPECT_NEAR(normal["n"][1].get<double>(), 153959, 1);
  EXPECT_NE(
      run({"theory", "gradient", "--between", "2,3"}).out.find("2 to 3 for n from 492 to 153958"),
      std::string::npos);
  const Outcome cosine =
      run({"theory", "gradient", "--scores", "cosine", "--dim", "128", "--between", "25,35"});
  EXPECT_NE(cosine.out.find("in 128 dimensions: 25 to 35 for n from 684 to 34149"),
            std::string::npos)
      << cosine.out;
}

TEST(TheoryCommand, Entropy) {
  const json result =
      run_json({"theory", "entropy", "--dim", "64", "--lambda", "0.125", "--lengths", "512"});
  ASSERT_EQ(result["values"].size(), 1);
  const json& value = result["values"][0];
  EXPECT_NEAR(result["kappa"].get<double>(), 8 / std::log(512), 1e-12);  // 1.282
  EXPECT_NE(run({"theory", "entropy", "--dim", "64"}).out.find("kappa = 1.2824."),
            std::string::npos);
  EXPECT_EQ(value["n"], 512);
  EXPECT_EQ(value["lambda"], 0.125);
  EXPECT_NEAR(value["entropy"].get<double>(), 5.749330365193723, 1e-12);
  EXPECT_NEAR(value["laplace"].get<double>(), std::log(512) - 0.24 * 8, 0.01);
  EXPECT_EQ(value["in_range"], true);
  EXPECT_EQ(
      run_json({"theory", "entropy", "--lambda", "1", "--lengths", "512"})["values"][0]["in_range"],
      false);
  EXPECT_NE(run({"theory", "entropy", "--lambda", "1"}).out.find("outside [0, ln n]"),
            std::string::npos);
  const json target = run_json({"theory", "entropy", "--target", "3", "--lengths", "64,512"});
  for (const json& row : target["values"]) EXPECT_NEAR(row["entropy"].get<double>(), 3, 1e-11);
  EXPECT_NEAR(run_json({"theory", "entropy", "--hold", "64,1024"})["base"].get<double>(), 7.62,
              0.01);
}

TEST(TheoryCommand, Dimension) {
  const json result = run_json({"theory", "dimension", "--lengths", "100000"});
  EXPECT_NEAR(result["values"][0]["dimension"].get<double>(), 92.10340371976183, 1e-12);
  EXPECT_NEAR(result["lambda"].get<double>(), 64 / std::log(512), 1e-12);
  EXPECT_NEAR(result["pair_factor"].get<double>(), 2 / 0.24, 0.03);  // 0.24 has two digits
  const std::string text = run({"theory", "dimension"}).out;
  EXPECT_NE(text.find("lambda = 64 / ln 512 = 10.2592."), std::string::npos) << text;
  EXPECT_NE(text.find("2 ln n, in 8.31235 ln n dimensions."), std::string::npos) << text;
}

TEST(TheoryCommand, Variance) {
  const json sampled = run_json({"theory", "variance", "--dim", "32"});
  EXPECT_EQ(sampled["holds"], true);
  EXPECT_NEAR(sampled["score_variance"].get<double>(), 32, 2);
  const TemporaryFolder folder;
  const auto path = write_file(
      folder / "qk.json", R"({"q": [[1, 2], [-3, 4], [0, 5]], "k": [[2, 0], [1, 1], [-1, 3]]})");
  EXPECT_EQ(run_json({"theory", "variance", "--input", path.string()})["dim"], 2);
  const auto ragged =
      write_file(folder / "ragged.json", R"({"q": [[1, 2], [3]], "k": [[1, 2], [3, 4]]})");
  expect_refusal({"theory", "variance", "--input", ragged.string()}, {"one length"});
}

TEST(TheoryCommand, Report) {
  const TemporaryFolder folder;
  const auto path = folder / "theory.html";
  EXPECT_EQ(run({"theory", "report", "--output", path.string()}).code, 0);
  const std::string page = read_file(path);
  for (const char* words :
       {"Unit variance", "Constant entropy", "Room for n keys", "Largest gradient",
        "0.8413 sqrt(ln n)", "3.4877 ln n", "The rules side by side"}) {
    EXPECT_NE(page.find(words), std::string::npos) << words;
  }
}

TEST(TheoryCommand, RefusesBadInput) {
  expect_refusal({"theory"}, {"subcommand"});
  expect_refusal({"theory", "entropy", "--lengths", "0.5"}, {"[lengths]", "must be whole"});
  expect_refusal({"theory", "entropy", "--dim", "1"}, {"dim must be at least 2", "got dim = 1"});
  expect_refusal({"theory", "entropy", "--lambda", "nan"}, {"lambda", "nan"});
  expect_refusal({"theory", "entropy", "--target", "9", "--lengths", "64"},
                 {"entropy must be", "got entropy = 9"});
  expect_refusal({"theory", "gradient", "--scores", "uniform"}, {"uniform"});
  expect_refusal({"theory", "gradient", "--scores", "cosine", "--dim", "1"},
                 {"dim", "got dim = 1"});
  expect_refusal({"theory", "dimension", "--base", "1"}, {"base", "got base = 1"});
  expect_refusal({"theory", "variance", "--dim", "0"}, {"dim"});
  expect_refusal({"theory", "variance", "--input", "/nowhere.json"}, {"/nowhere.json"});
  expect_refusal({"theory", "report", "--output", "/nowhere/page.html"}, {"/nowhere/page.html"});
}

TEST(Commands, HelpIsNoError) {
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{"--help"},
                                                    {"scale", "--help"},
                                                    {"theory", "--help"},
                                                    {"theory", "gradient", "--help"}}) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, 0);
    EXPECT_NE(outcome.out, "");
  }
}

}  // namespace
}  // namespace isentrope
