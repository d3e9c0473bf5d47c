// isentrope scale and isentrope theory, run as programs.
#include <cmath>

#include "isentrope/rule_catalogue.h"
#include "isentrope/scale_rule.h"
#include "tests/support/isentrope.h"

namespace isentrope {
namespace {

using nlohmann::json;

TEST(ScaleCommand, PrintsLambdaPerLength) {
  const json result =
      json_of({"scale", "entropy_invariant(base=512)", "--dim", "64", "--lengths", "64,512,1024"});
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
      json_of({"scale", "standard", "--compare", "log_length", "logn(512)", "--lengths", "512"});
  ASSERT_EQ(result["compare"].size(), 2);
  EXPECT_EQ(result["compare"][1]["rule"], "logn(train_len=512)");
  expect_words(output_of({"scale", "standard", "--compare", "log_length"}),
               {"65536", "b  log_length", "log_length: length=visible: the paper's"});
  EXPECT_EQ(json_of({"scale", "logn * dual_chunk(64,length=position)"})["counts"],
            "length=" + std::string(find_rule("logn")->counts) + "; length=position: as given");
}

TEST(ScaleCommand, TakesEveryRule) {
  for (const ScaleRule& rule : ScaleRule::all()) {
    EXPECT_EQ(json_of({"scale", rule.text(), "--lengths", "1,512"})["rule"], rule.text());
  }
  const std::string list = output_of({"scale", "--list"});
  for (const auto name : ScaleRule::names()) expect_words(list, {std::string(name)});
  EXPECT_EQ(json_of({"scale", "--list"})["rules"].size(), rule_catalogue().size());
}

TEST(ScaleCommand, ReadsAModelsConfig) {
  const TemporaryFolder folder;
  const auto path = write_file(folder / "config.json",
                               R"({"model_type": "qwen", "use_logn_attn": true, "seq_length": 2048,
                                   "head_dim": 128})");
  const json result = json_of({"scale", "--config", path.string(), "--lengths", "4096"});
  EXPECT_EQ(result["rule"], "logn(train_len=2048)");
  EXPECT_EQ(result["dim"], 128);
  EXPECT_EQ(result["known"], true);
  EXPECT_EQ(result["model_type"], "qwen");
  EXPECT_EQ(result["keys"], json({"use_logn_attn", "seq_length"}));
  expect_words(output_of({"scale", "--config", path.string()}), {"key     use_logn_attn"});
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
    expect_words(plain.err, {"model_type must be a family whose code was read"});
    const Outcome printed = run({"scale", "--config", path.string(), "--json"});
    EXPECT_EQ(printed.code, 1);
    const json result = json::parse(printed.out);
    EXPECT_EQ(result["known"], false);
    EXPECT_EQ(result["model_type"], type);
    EXPECT_TRUE(result["rule"].is_null());
    EXPECT_FALSE(result.contains("values"));
  }
}

TEST(TheoryCommand, Gradient) {
  const json cosine = json_of({"theory", "gradient", "--scores", "cosine", "--dim", "128"});
  EXPECT_EQ(cosine["scores"], "cosine");
  EXPECT_EQ(cosine["dim"], 128);
  ASSERT_EQ(cosine["values"].size(), 500);
  EXPECT_EQ(cosine["values"][0]["n"], 40);
  EXPECT_NEAR(cosine["values"][499]["alpha"].get<double>(), 33.68382484182837, 1e-10);
  EXPECT_EQ(cosine["fit"]["form"], "c ln n");
  EXPECT_NEAR(cosine["fit"]["c"].get<double>(), 3.4876913654682142, 1e-8);
  const json normal = json_of({"theory", "gradient", "--lengths", "40:20000:40"});
  EXPECT_EQ(normal["fit"]["form"], "c sqrt(ln n)");
  EXPECT_NEAR(normal["fit"]["c"].get<double>(), 0.8413457247205173, 1e-9);
  const json coefficients = json_of({"theory", "gradient", "--dims", "64,128"});
  EXPECT_NEAR(coefficients["values"][1]["c"].get<double>(), 3.4876913654682142, 1e-8);
  const json rules = json_of(
      {"theory", "gradient", "--rule", "log_length", "--dim", "64", "--lengths", "20,65536"});
  EXPECT_GT(rules["rules"][0]["values"][1]["starved"], 0.1);
  EXPECT_LT(rules["rules"][0]["values"][1]["annealed"], 0);
}

// Ranges stated by the notes: the lengths whose optimal alphas are in an interval.
TEST(TheoryCommand, LengthsBetweenTwoOptima) {
  const json normal = json_of({"theory", "gradient", "--between", "3,2"});
  EXPECT_EQ(normal["alpha"], (json{2, 3}));
  EXPECT_NEAR(normal["n"][0].get<double>(), 491.383, 1e-3);
  EXPECT_NEAR(normal["n"][1].get<double>(), 153959, 1);
  expect_words(output_of({"theory", "gradient", "--between", "2,3"}),
               {"2 to 3 for n from 492 to 153958"});
  expect_words(output_of({"theory", "gradient", "--scores", "cosine", "--between", "25,35"}),
               {"in 128 dimensions: 25 to 35 for n from 684 to 34149"});
}

TEST(TheoryCommand, Entropy) {
  const json result =
      json_of({"theory", "entropy", "--dim", "64", "--lambda", "0.125", "--lengths", "512"});
  ASSERT_EQ(result["values"].size(), 1);
  const json& value = result["values"][0];
  EXPECT_NEAR(result["kappa"].get<double>(), 8 / std::log(512), 1e-12);  // 1.282
  expect_words(output_of({"theory", "entropy", "--dim", "64"}), {"kappa = 1.2824."});
  EXPECT_EQ(value["n"], 512);
  EXPECT_EQ(value["lambda"], 0.125);
  EXPECT_NEAR(value["entropy"].get<double>(), 5.749330365193723, 1e-12);
  EXPECT_NEAR(value["laplace"].get<double>(), std::log(512) - 0.24 * 8, 0.01);
  EXPECT_EQ(value["in_range"], true);
  EXPECT_EQ(json_of({"theory", "entropy", "--lambda", "1"})["values"][0]["in_range"], false);
  expect_words(output_of({"theory", "entropy", "--lambda", "1"}), {"outside [0, ln n]"});
  expect_words(output_of({"theory", "entropy", "--target", "0", "--lengths", "64"}), {" 0   -1.9"});
  const json target = json_of({"theory", "entropy", "--target", "3", "--lengths", "64,512"});
  for (const json& row : target["values"]) EXPECT_NEAR(row["entropy"].get<double>(), 3, 1e-11);
  EXPECT_NEAR(json_of({"theory", "entropy", "--hold", "64,1024"})["base"], 7.62, 0.01);
}

TEST(TheoryCommand, Dimension) {
  const json result = json_of({"theory", "dimension", "--lengths", "100000"});
  EXPECT_NEAR(result["values"][0]["dimension"].get<double>(), 92.10340371976183, 1e-12);
  EXPECT_NEAR(result["lambda"].get<double>(), 64 / std::log(512), 1e-12);
  EXPECT_NEAR(result["pair_factor"].get<double>(), 2 / 0.24, 0.03);  // 0.24 has two digits
  expect_words(output_of({"theory", "dimension"}),
               {"lambda = 64 / ln 512 = 10.2592.", "2 ln n, in 8.31235 ln n dimensions."});
}

TEST(TheoryCommand, Variance) {
  const json sampled = json_of({"theory", "variance", "--dim", "32"});
  EXPECT_EQ(sampled["holds"], true);
  EXPECT_NEAR(sampled["score_variance"].get<double>(), 32, 2);
  const json far = json_of({"theory", "variance", "--mean", "1e6", "--deviation", "1e-3"});
  EXPECT_NEAR(far["score_variance"].get<double>(), 2 * 64 * 1e6, 1e7);  // 2 d mean^2 deviation^2
  const TemporaryFolder folder;
  const auto path = write_file(
      folder / "qk.json", R"({"q": [[1, 2], [-3, 4], [0, 5]], "k": [[2, 0], [1, 1], [-1, 3]]})");
  EXPECT_EQ(json_of({"theory", "variance", "--input", path.string()})["dim"], 2);
  const auto ragged = write_file(folder / "ragged.json", R"({"q": [[1, 2], [3]], "k": [[1, 2]]})");
  expect_refusal({"theory", "variance", "--input", ragged.string()}, {"one length"});
}

TEST(Commands, WritePages) {
  const TemporaryFolder folder;
  const std::string path = (folder / "page.html").string();
  (void)output_of(
      {"scale", "ssmax", "--compare", "cosine", "--lengths", "16,64", "--report", path});
  expect_words(read_file(path), {"Softmax scale by length", "ssmax"});
  (void)output_of({"theory", "report", "--output", path});
  expect_words(read_file(path),
               {"Unit variance", "Constant entropy", "Room for n keys", "Largest gradient",
                "0.8413 sqrt(ln n)", "3.4877 ln n", "The rules side by side"});
}

TEST(Commands, RefuseBadInputAndOptionsThatNothingReads) {
  for (const auto& [text, words] : std::vector<std::pair<std::string, std::vector<std::string>>>{
           {"scale", {"RULE"}},
           {"scale entropy_invarant(base=512)", {"log_length", "did you mean entropy_invariant?"}},
           {"scale entropy_invariant(base=1)", {"base must be above 1", "got base = 1"}},
           {"scale logn(train_len=nan)", {"train_len", "nan"}},
           {"scale standard --dim 1", {"dim must be at least 2", "got dim = 1"}},
           {"scale standard --dim 0", {"got dim = 0"}},
           {"scale standard --dim wide", {"wide"}},
           {"scale standard --dim 99999999999999999999", {"--dim: a whole number of 64 bits"}},
           {"scale standard --dim -99999999999999999999", {"64 bits is needed; got \"-9999"}},
           {"scale standard --head -1", {"--head: a whole number from 0 to"}},
           {"scale standard --head 99999999999999999999", {"--head: a whole number from 0 to"}},
           {"scale ssmax(s=[1,2]) --head 2", {"head"}},
           {"scale --config /nowhere/config.json", {"/nowhere/config.json"}},
           {"scale standard --report /nowhere/page.html", {"/nowhere/page.html"}},
           {"scale standard --unknown", {"--unknown"}},
           {"scale --list --dim 8", {"--dim excludes --list"}},
           {"theory", {"subcommand"}},
           {"theory entropy --lengths 0.5", {"[lengths]", "must be whole"}},
           {"theory entropy --dim 1", {"dim must be at least 2", "got dim = 1"}},
           {"theory entropy --dim 99999999999999999999", {"--dim: a whole number of 64 bits"}},
           {"theory entropy --dim -99999999999999999999", {"64 bits is needed; got \"-9999"}},
           {"theory entropy --lambda nan", {"lambda", "nan"}},
           {"theory entropy --target 9 --lengths 64", {"entropy must be", "got entropy = 9"}},
           {"theory entropy --rule ssmax(s=[1,2])", {"one scale for all heads; got ssmax(s=[1,2]"}},
           {"theory entropy --hold 64,1024 --lambda 3", {"--lambda excludes --hold"}},
           {"theory entropy --hold 64,1024 --lengths 64", {"--lengths excludes --hold"}},
           {"theory gradient --scores uniform", {"uniform"}},
           {"theory gradient --scores cosine --dim 1", {"dim", "got dim = 1"}},
           {"theory gradient --scores cosine --rule standard", {"--rule must come with normal"}},
           {"theory gradient --scores normal --dims 16", {"--dims must come with cosine scores"}},
           {"theory gradient --dims 16 --lengths 64", {"--lengths excludes --dims"}},
           {"theory gradient --between 1,2 --lengths 64", {"--lengths excludes --between"}},
           {"theory gradient --between 1,1000", {"got alpha = 1000"}},
           {"theory gradient --lengths 8 --rule standard ssmax(s=[1,2])", {"one scale for all"}},
           {"theory dimension --base 1", {"base", "got base = 1"}},
           {"theory variance --dim 0", {"dim"}},
           {"theory variance --deviation -1", {"deviation must be at least 1e-06"}},
           {"theory variance --mean 1e200", {"mean must be at least", "got mean = 1e+200"}},
           {"theory variance --seed -1", {"--seed: a whole number from 0 to"}},
           {"theory variance --input /nowhere.json", {"/nowhere.json"}},
           {"theory variance --input /nowhere.json --rows 8", {"--input excludes --rows"}},
           {"theory report --output /nowhere/page.html", {"/nowhere/page.html"}}}) {
    std::istringstream stream(text);
    expect_refusal({std::istream_iterator<std::string>(stream), {}}, words);
  }
  for (const char* lengths : {"0", "-3", "1.5", "nan", "", "64,", "5:1:1", "1:5", "1:5:0", "1:2:x1",
                              "1e30", "1:1e12:1"}) {
    expect_refusal({"scale", "standard", "--lengths", lengths}, {"[lengths]"});
  }
}

TEST(Commands, HelpIsNoError) {
  for (const char* command : {"scale", "theory"}) EXPECT_NE(output_of({command, "--help"}), "");
  EXPECT_NE(output_of({"theory", "gradient", "--help"}), "");
  EXPECT_NE(output_of({"--help"}), "");
}

}  // namespace
}  // namespace isentrope
