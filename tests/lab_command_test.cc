// isentrope extrapolate as a user meets it: what it writes, what it refuses, and how it takes
// interruption.

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "isentrope/scale_rule.h"
#include "lab/safetensors.h"
#include "tests/support/command.h"
#include "tests/support/lab_text.h"

namespace isentrope::lab {
namespace {

using nlohmann::json;
using Arguments = std::vector<std::string>;
namespace fs = std::filesystem;

Arguments words(const std::string& text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), {}};
}

Arguments with(Arguments a, const Arguments& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

bool given(const Arguments& arguments, const std::string& option) {
  return std::ranges::any_of(arguments,
                             [&](const auto& argument) { return argument.starts_with(option); });
}

class Extrapolate : public testing::Test {
 protected:
  // A run of a second: a tiny model on the tests' own text, into out(). Of an option given twice
  // the last counts.
  Arguments command(const Arguments& more = {}) const {
    Arguments all =
        words("--layers 1 --width 8 --heads 2 --batch 4 --train-length 8 --steps 20 --threads 1");
    all.insert(all.begin(), {ISENTROPE_EXTRAPOLATE, "--output", out().string()});
    if (!given(more, "--lengths")) all.insert(all.end(), {"--lengths", "8,32"});
    if (!given(more, "--corpus")) all.insert(all.end(), {"--corpus", corpus_.string()});
    return with(all, more);
  }

  fs::path out() const { return folder_ / "out"; }
  fs::path text(const std::string& name, const std::string& content) const {
    return write_file(folder_ / name, content);
  }
  json result() const { return json::parse(read_file(out() / "result.json")); }

  // One line on stderr that says `says`, exit code 2, and no file written.
  void expect_refused(const Arguments& more, const std::string& says) const {
    const Outcome outcome = run_command(command(more));
    EXPECT_EQ(outcome.code, 2) << says;
    EXPECT_EQ(outcome.out, "") << says;
    EXPECT_NE(outcome.err.find(says), std::string::npos) << says << "\n" << outcome.err;
    EXPECT_EQ(std::ranges::count(outcome.err, '\n'), 1) << outcome.err;
    EXPECT_FALSE(fs::exists(out())) << says;
  }

 private:
  TemporaryFolder folder_;
  fs::path corpus_ = text("corpus.txt", make_text(4000));
};

// Of every model in the folder.
std::vector<std::pair<std::string, at::Tensor>> weights(const fs::path& folder) {
  std::vector<std::pair<std::string, at::Tensor>> all;
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".safetensors") files.push_back(entry.path());
  }
  std::ranges::sort(files);
  for (const fs::path& file : files) {
    for (auto& [name, tensor] : load_tensors(file).tensors)
      all.emplace_back(file.filename() / name, tensor);
  }
  return all;
}

void expect_same_bits(const fs::path& a, const fs::path& b) {
  const auto x = weights(a), y = weights(b);
  ASSERT_EQ(x.size(), y.size());
  ASSERT_GT(x.size(), 10U);
  for (std::size_t i = 0; i < x.size(); ++i) {
    EXPECT_EQ(x[i].first, y[i].first);
    EXPECT_TRUE(x[i].second.equal(y[i].second)) << x[i].first;
  }
}

void wait_for(const fs::path& file) {
  for (int i = 0; i < 3000 && !fs::exists(file); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  ASSERT_TRUE(fs::exists(file)) << file;
}

const Arguments kLong{"--steps", "1500"};  // long enough to be interrupted
const char* const kFirstModel = "checkpoints/standard-seed1.safetensors";

TEST_F(Extrapolate, WritesWhatTheSchemaSays) {
  const Outcome outcome = run_command(command({"--seeds", "2"}));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.out.find("Leads over standard"), 0U) << outcome.out;
  EXPECT_NE(outcome.out.find("entropy_invariant(base=8) on the model of standard"),
            std::string::npos);
  EXPECT_NE(outcome.out.find((out() / "result.json").string()), std::string::npos);
  EXPECT_NE(outcome.out.find((out() / "report.html").string()), std::string::npos);
  EXPECT_NE(outcome.err.find("standard, seed 1: step 20 of 20, loss"), std::string::npos)
      << outcome.err;
  EXPECT_EQ(outcome.err.find('\r'), std::string::npos);

  EXPECT_NE(read_file(out() / "report.html").find("<html"), std::string::npos);
  const json r = result();
  EXPECT_EQ(r["schema"], 2);
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

// Mean, standard deviation and error of the paired differences, and what is beyond two errors.
TEST_F(Extrapolate, LeadsAndVerdictsAreThoseOfTheSeeds) {
  ASSERT_EQ(run_command(command({"--seeds", "3", "--rules", "standard,log_length"})).code, 0);
  const json r = result();
  int checked = 0;
  for (const json& lead : r["leads"]) {
    const auto seeds_of = [&](const json& rule, const json& kind) {
      for (const json& row : r["rules"]) {
        if (row["rule"] == rule && row["kind"] == kind) return row["seeds"];
      }
      return json();
    };
    const std::string length = std::to_string(lead["length"].get<int>());
    const std::string metric = lead["metric"];
    const json own = seeds_of(lead["rule"], lead["kind"]), other = seeds_of("standard", "trained");
    double x[3], mean = 0, square = 0;
    for (std::size_t i = 0; i < 3; ++i) {
      ASSERT_EQ(own[i]["seed"], other[i]["seed"]);
      x[i] = own[i][metric][length].get<double>() - other[i][metric][length].get<double>();
      mean += x[i] / 3;
    }
    for (const double value : x) square += (value - mean) * (value - mean);
    const double se = std::sqrt(square / 2 / 3);
    EXPECT_EQ(lead["seeds"], 3);
    EXPECT_NEAR(lead["mean"].get<double>(), mean, 1e-12);
    EXPECT_NEAR(lead["sd"].get<double>(), std::sqrt(square / 2), 1e-12);
    EXPECT_NEAR(lead["se"].get<double>(), se, 1e-12);
    const bool better = metric == "accuracy" ? mean > 0 : mean < 0;
    const char* verdict = std::abs(mean) <= 2 * se ? "undecided" : better ? "helps" : "hurts";
    EXPECT_EQ(lead["verdict"], verdict) << lead;
    ++checked;
  }
  EXPECT_EQ(checked, 4 * 2 * 2);  // rows, metrics, lengths
}

// Every position scheme and objective learns something of a small text, writes its result, and
// trains rules from one start on the same batches: the first losses agree where the scales do.
TEST_F(Extrapolate, TrainsEveryModel) {
  const std::string rules = "standard,entropy_invariant(base=8)";
  for (const char* shape : {"roformer", "modern"}) {
    for (const char* positions : {"rope", "rope-partial", "t5", "alibi", "none"}) {
      for (const char* objective : {"mlm", "causal"}) {
        const std::string name = fmt::format("{} {} {}", shape, positions, objective);
        const Outcome outcome = run_command(command(
            {"--model", shape, "--positions", positions, "--objective", objective, "--rules", rules,
             "--init", "pytorch", "--learning-rate", "1e-2", "--steps", "40", "--overwrite"}));
        ASSERT_EQ(outcome.code, 0) << name << outcome.err;
        const json r = result();
        const json &standard = r["rules"][0], &invariant = r["rules"][1];
        EXPECT_LT(standard["cross_entropy"]["8"], 5.2) << name;  // ln 257 = 5.55 untrained
        EXPECT_GT(standard["share_beyond"]["32"], 0) << name;
        EXPECT_EQ(standard["share_beyond"]["8"], 0) << name;
        EXPECT_EQ(standard.contains("bits_per_byte"), std::string(objective) == "causal") << name;
        const double first = standard["loss"][0], other = invariant["loss"][0];
        // Rows of 8 keys have one scale under both rules; the causal rows before the eighth do not.
        EXPECT_NEAR(first, other, std::string(objective) == "mlm" ? 1e-6 : 0.1) << name;
      }
    }
  }
}

TEST_F(Extrapolate, LearnsFactorsAndDropsOut) {
  const Outcome outcome = run_command(
      command({"--rules", "standard,learned(ssmax)", "--dropout", "0.1", "--steps", "40"}));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  bool moved = false;
  for (const auto& [name, tensor] : weights(out() / "models")) {
    if (name.find("model.layers.0.factor") != std::string::npos)
      moved = !tensor.eq(1).all().item<bool>();
  }
  EXPECT_TRUE(moved);
}

// One thread to a training: how many train at a time changes no digit.
TEST_F(Extrapolate, JobsDoNotChangeADigit) {
  ASSERT_EQ(run_command(command({"--seeds", "2", "--jobs", "1"})).code, 0);
  const json one = result();
  fs::rename(out(), out().string() + "-one");
  ASSERT_EQ(run_command(command({"--seeds", "2", "--jobs", "4"})).code, 0);
  expect_same_bits(out() / "models", out().string() + "-one/models");
  EXPECT_EQ(result()["leads"], one["leads"]);
}

TEST_F(Extrapolate, PrintsTheResultAsJson) {
  const Outcome outcome = run_command(command({"--json", "--quiet"}));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  EXPECT_EQ(json::parse(outcome.out), result());
}

TEST_F(Extrapolate, TakesEveryRule) {
  const Outcome outcome = run_command(command({"--rules", "all", "--steps", "2"}));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  std::size_t trained = 0;
  const json written = result();
  for (const json& row : written["rules"]) trained += row["kind"] == "trained";
  EXPECT_EQ(trained, ScaleRule::all().size());
}

TEST_F(Extrapolate, ShowsHelp) {
  const Outcome outcome = run_command({ISENTROPE_EXTRAPOLATE, "--help"});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_NE(outcome.out.find("--learning-rate"), std::string::npos);
}

TEST_F(Extrapolate, TrainsATokenizer) {
  const auto corpus = text("long.txt", make_text(30000)).string();
  ASSERT_EQ(run_command(command({"--corpus", corpus, "--vocabulary", "285"})).code, 0);
  EXPECT_EQ(result()["corpus"]["tokenizer"], "sentencepiece");
  EXPECT_EQ(result()["corpus"]["vocabulary"], 286);
  fs::copy_file(out() / "models/tokenizer.model", out().string() + ".model");
  const Outcome again = run_command(
      command({"--corpus", corpus, "--tokenizer", out().string() + ".model", "--overwrite"}));
  EXPECT_EQ(again.code, 0) << again.err;
}

TEST_F(Extrapolate, RefusesBadInput) {
  expect_refused({"--corpus", "/no/such/file"}, "no such file: /no/such/file");
  expect_refused({"--corpus", text("empty", "").string()}, "is empty");
  expect_refused({"--corpus", "/tmp"}, "directory");
  expect_refused({"--corpus", text("short", "Too short.").string()}, "got 10, 1 and 0");
  expect_refused({"--lengths", "8,401"}, "401 in each twentieth");
  expect_refused({"--tokenizer", text("model", make_text(300)).string()},
                 "not a SentencePiece model");
  expect_refused({"--vocabulary", "100000"}, "100000 pieces");
  expect_refused({"--rules", "standard,entropy"}, "a rule must be one of");
  expect_refused({"--rules", "entropy_invariant(base=0)"}, "base must be above 1");
}

TEST_F(Extrapolate, RefusesBadNumbers) {
  for (const char* option : {"--steps", "--train-length", "--lengths", "--seeds", "--layers",
                             "--width", "--heads", "--batch", "--learning-rate", "--threads",
                             "--jobs", "--evaluation-tokens", "--vocabulary"}) {
    for (const char* value : {"0", "many"}) expect_refused({option, value}, option);
  }
  for (const char* value : {"-3", "12x", "1.5", "99999999999999999999"}) {
    expect_refused({std::string("--steps=") + value}, "a whole number from 1");
  }
  for (const char* value : {"-1e-3", "nan", "inf", "1e-3x"}) {
    expect_refused({std::string("--learning-rate=") + value}, "a positive number");
  }
  expect_refused({"--width", "9"}, "width must be an even multiple of heads");
  expect_refused({"--heads", "8"}, "width must be an even multiple of heads");
  expect_refused({"--seed", "-1"}, "--seed");
  for (const char* option : {"--preset", "--model", "--init", "--positions", "--objective",
                             "--embedding-norm", "--part", "--dropout"}) {
    expect_refused({option, "huge"}, option);
  }
  expect_refused({"--dropout", "1"}, "--dropout");
  expect_refused({"--unheard"}, "--unheard");
}

TEST_F(Extrapolate, RefusesAFolderItCannotWrite) {
  const fs::path file = text("file", "mine");
  expect_refused({"--output", (file / "below").string()}, "a folder that can be written");
  expect_refused({"--output", file.string()}, "a folder that can be written");
  expect_refused({"--output", "/proc/isentrope"}, "a folder that can be written");
  EXPECT_EQ(read_file(file), "mine");
}

TEST_F(Extrapolate, ResumesAfterCtrlCWithTheSameBits) {
  Command first(command(kLong));
  wait_for(out() / kFirstModel);
  first.signal(SIGINT);
  const Outcome interrupted = first.wait();
  EXPECT_EQ(interrupted.code, 130) << interrupted.err;
  EXPECT_NE(interrupted.err.find("--resume"), std::string::npos) << interrupted.err;
  EXPECT_FALSE(fs::exists(out() / "result.json"));

  const Outcome refused = run_command(command(kLong));
  EXPECT_EQ(refused.code, 2);
  EXPECT_NE(refused.err.find("holds a started run: add --resume"), std::string::npos)
      << refused.err;

  const Outcome resumed = run_command(command(with(kLong, {"--resume"})));
  EXPECT_EQ(resumed.code, 0) << resumed.err;
  const json interrupted_result = result();
  fs::rename(out(), out().string() + "-interrupted");

  ASSERT_EQ(run_command(command(kLong)).code, 0);
  expect_same_bits(out() / "models", out().string() + "-interrupted/models");
  for (const char* member : {"loss", "accuracy", "entropy", "gradient_mass", "cross_entropy"}) {
    EXPECT_EQ(result()["rules"][1][member], interrupted_result["rules"][1][member]) << member;
  }
}

TEST_F(Extrapolate, ResumesAfterAKillWithTheSameBits) {
  Command first(command(kLong));
  wait_for(out() / kFirstModel);
  first.signal(SIGKILL);
  EXPECT_EQ(first.wait().code, 128 + SIGKILL);
  ASSERT_EQ(run_command(command(with(kLong, {"--resume"}))).code, 0);
  fs::rename(out() / "models", out().string() + "-killed");
  ASSERT_EQ(run_command(command(with(kLong, {"--overwrite"}))).code, 0);
  expect_same_bits(out() / "models", out().string() + "-killed");
}

TEST_F(Extrapolate, DoesNotTrainAFinishedRuleAgain) {
  ASSERT_EQ(run_command(command({"--rules", "standard"})).code, 0);
  const json before = result();
  const Outcome more = run_command(command({"--rules", "standard,log_length", "--resume"}));
  ASSERT_EQ(more.code, 0) << more.err;
  EXPECT_EQ(more.err.find("standard: step"), std::string::npos) << more.err;
  EXPECT_NE(more.err.find("log_length: step 20 of 20"), std::string::npos) << more.err;
  EXPECT_EQ(result()["rules"][0], before["rules"][0]);
}

TEST_F(Extrapolate, OverwritesAFinishedRunOnlyWhenTold) {
  ASSERT_EQ(run_command(command({"--rules", "standard,log_length"})).code, 0);
  const std::string before = read_file(out() / "result.json");
  const Outcome refused = run_command(command());
  EXPECT_EQ(refused.code, 2);
  EXPECT_NE(refused.err.find("holds a finished run: add --resume"), std::string::npos)
      << refused.err;
  EXPECT_EQ(read_file(out() / "result.json"), before);
  ASSERT_EQ(run_command(command({"--overwrite"})).code, 0);
  EXPECT_FALSE(fs::exists(out() / "models/log_length-seed1.safetensors"));
  EXPECT_TRUE(fs::exists(out() / "models/standard-seed1.json"));
}

// A record stands for its model, as it does where only results are kept: nothing is trained.
TEST_F(Extrapolate, ARecordWithoutItsModelIsEnough) {
  ASSERT_EQ(run_command(command()).code, 0);
  const json before = result();
  for (const auto& entry : fs::directory_iterator(out() / "models")) {
    if (entry.path().extension() == ".safetensors") fs::remove(entry.path());
  }
  const Outcome again = run_command(command({"--resume"}));
  ASSERT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(again.err.find("step"), std::string::npos) << again.err;
  EXPECT_EQ(result()["rules"], before["rules"]);

  // What was not finite is null there, and stays so.
  const fs::path record = out() / "models/standard-seed1.json";
  json measured = json::parse(read_file(record));
  measured["rows"][0]["cross_entropy"][1] = nullptr;
  measured["gains"]["accuracy"][1][0] = nullptr;
  write_file(record, measured.dump());
  const Outcome with_null = run_command(command({"--resume"}));
  ASSERT_EQ(with_null.code, 0) << with_null.err;
  EXPECT_TRUE(result()["rules"][0]["cross_entropy"]["32"].is_null());
  EXPECT_EQ(result()["rules"][0]["accuracy"], before["rules"][0]["accuracy"]);

  // Other lengths are another measurement.
  const Outcome other = run_command(command({"--resume", "--lengths", "8,16"}));
  ASSERT_EQ(other.code, 0) << other.err;
  EXPECT_NE(other.err.find("step 20 of 20"), std::string::npos) << other.err;
}

// As one is that was written before there was such a measure: the model is there, nothing is
// trained.
TEST_F(Extrapolate, MeasuresAgainWhatARecordLacks) {
  ASSERT_EQ(run_command(command()).code, 0);
  const json before = result();
  const fs::path record = out() / "models/standard-seed1.json";
  json measured = json::parse(read_file(record));
  for (json& row : measured["rows"]) row.erase("distance");
  write_file(record, measured.dump());
  const Outcome again = run_command(command({"--resume"}));
  ASSERT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(again.err.find(": step"), std::string::npos) << again.err;
  EXPECT_EQ(result()["rules"], before["rules"]);
}

TEST_F(Extrapolate, RefusesToResumeAnotherRun) {
  ASSERT_EQ(run_command(command()).code, 0);
  const std::string before = read_file(out() / "result.json");
  const fs::path model = out() / "models/standard-seed1.safetensors";
  const auto refused = [&](const Arguments& more, const std::string& says) {
    const Outcome outcome = run_command(command(with({"--resume"}, more)));
    EXPECT_EQ(outcome.code, 2) << says;
    EXPECT_NE(outcome.err.find(says), std::string::npos) << outcome.err;
    EXPECT_EQ(read_file(out() / "result.json"), before);
    EXPECT_TRUE(fs::exists(model));
  };
  refused({"--width", "16"}, "width is 8 there and 16 here");
  refused({"--steps", "30"}, "steps is 20 there and 30 here");
  refused({"--corpus", text("other.txt", make_text(5000)).string()},
          "another configuration: corpus");
  fs::remove(out() / "models/standard-seed1.json");
  fs::resize_file(model, 1000);
  refused({}, "is damaged");
}

TEST_F(Extrapolate, StopsAtALossThatIsNoNumber) {
  const Outcome outcome = run_command(command({"--steps", "300", "--learning-rate", "1e36"}));
  EXPECT_EQ(outcome.code, 1) << outcome.err;
  EXPECT_NE(outcome.err.find("the loss of step"), std::string::npos) << outcome.err;
  EXPECT_FALSE(fs::exists(out() / "result.json"));
}

}  // namespace
}  // namespace isentrope::lab
