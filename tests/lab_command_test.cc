// isentrope extrapolate as a user meets it: what it writes, what it refuses, and how it takes
// interruption.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
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
  for (const auto& entry : fs::directory_iterator(folder)) files.push_back(entry.path());
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
  EXPECT_NE(outcome.out.find("entropy_invariant(base=8)"), std::string::npos);
  EXPECT_NE(outcome.out.find((out() / "result.json").string()), std::string::npos);
  EXPECT_NE(outcome.out.find((out() / "report.html").string()), std::string::npos);
  EXPECT_NE(outcome.err.find("standard, seed 1: step 20 of 20, loss"), std::string::npos)
      << outcome.err;
  EXPECT_EQ(outcome.err.find('\r'), std::string::npos);

  EXPECT_NE(read_file(out() / "report.html").find("<html"), std::string::npos);
  const json r = result();
  EXPECT_EQ(r["schema"], 1);
  EXPECT_EQ(r["lengths"], (json{8, 32}));
  EXPECT_EQ(r["config"]["seeds"], 2);
  EXPECT_EQ(r["corpus"]["tokenizer"], "bytes");
  EXPECT_EQ(r["corpus"]["tokens"],
            r["corpus"]["training_tokens"].get<int>() + r["corpus"]["held_out_tokens"].get<int>());
  EXPECT_GT(r["evaluation"]["predictions"]["32"], 30);
  EXPECT_TRUE(r["machine"]["cpu"].is_string());
  ASSERT_EQ(r["rules"].size(), 2U);
  for (const json& rule : r["rules"]) {
    for (const char* measure : {"accuracy", "cross_entropy", "entropy", "gradient_mass"}) {
      EXPECT_TRUE(rule[measure]["8"].is_number()) << measure;
      EXPECT_TRUE(rule["spread"][measure]["32"].is_number()) << measure;
    }
    EXPECT_EQ(rule["loss"].size(), 20U);
    EXPECT_EQ(rule["seeds"].size(), 2U);
    EXPECT_GT(rule["seconds_per_step"], 0);
  }
  EXPECT_EQ(r["rules"][0]["rule"], "standard");
  EXPECT_EQ(weights(out() / "models").size() % 4, 0U);
}

// The default rule is the standard one at the training length, whatever that is.
TEST_F(Extrapolate, TrainsOnceWhereRulesAgreeAtTheTrainingLength) {
  const Outcome outcome = run_command(command());
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.err.find("the model of standard"), std::string::npos) << outcome.err;
  const json rules = result()["rules"];
  EXPECT_FALSE(rules[0].contains("trained_as"));
  EXPECT_EQ(rules[1]["trained_as"], "standard");
  EXPECT_EQ(rules[1]["loss"], rules[0]["loss"]);
  EXPECT_EQ(rules[1]["cross_entropy"]["8"], rules[0]["cross_entropy"]["8"]);
  EXPECT_GT(rules[1]["gradient_mass"]["32"], 1.6 * rules[0]["gradient_mass"]["32"].get<double>());

  const auto shared = weights(out() / "models");
  ASSERT_EQ(run_command(command({"--rules", "entropy_invariant(base=8)"})).code, 0);
  EXPECT_FALSE(result()["rules"][0].contains("trained_as"));
  const auto alone = weights(out() / "models");
  ASSERT_EQ(shared.size(), 2 * alone.size());
  for (std::size_t i = 0; i < alone.size(); ++i) {
    EXPECT_EQ(shared[i].first, alone[i].first);
    EXPECT_TRUE(shared[i].second.equal(alone[i].second)) << alone[i].first;
  }
}

TEST_F(Extrapolate, TrainsTwiceWhereTheyDoNot) {
  const Outcome outcome = run_command(command({"--rules", "standard,entropy_invariant"}));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_FALSE(result()["rules"][1].contains("trained_as"));
  EXPECT_NE(result()["rules"][1]["loss"], result()["rules"][0]["loss"]);
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
  EXPECT_EQ(result()["rules"].size(), ScaleRule::all().size());
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
  const std::string model = (out() / "models/tokenizer.model").string();
  const Outcome again = run_command(command({"--corpus", corpus, "--tokenizer", model}));
  EXPECT_EQ(again.code, 0) << again.err;
}

TEST_F(Extrapolate, RefusesBadInput) {
  expect_refused({"--corpus", "/no/such/file"}, "no such file: /no/such/file");
  expect_refused({"--corpus", text("empty", "").string()}, "is empty");
  expect_refused({"--corpus", "/tmp"}, "directory");
  expect_refused({"--corpus", text("short", "Too short.").string()}, "320 tokens in all; got 11");
  expect_refused({"--lengths", "8,401"}, "4010 tokens in all");
  expect_refused({"--tokenizer", text("model", make_text(300)).string()},
                 "not a SentencePiece model");
  expect_refused({"--vocabulary", "100000"}, "100000 pieces");
  expect_refused({"--rules", "standard,entropy"}, "a rule must be one of");
  expect_refused({"--rules", "entropy_invariant(base=0)"}, "base must be above 1");
}

TEST_F(Extrapolate, RefusesBadNumbers) {
  for (const char* option :
       {"--steps", "--train-length", "--lengths", "--seeds", "--layers", "--width", "--heads",
        "--batch", "--learning-rate", "--threads", "--vocabulary"}) {
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
  expect_refused({"--preset", "huge"}, "--preset");
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
  EXPECT_NE(refused.err.find("add --resume"), std::string::npos) << refused.err;

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
  ASSERT_EQ(run_command(command(kLong)).code, 0);
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
  ASSERT_EQ(run_command(command()).code, 0) << "a finished run is done again";
  EXPECT_FALSE(fs::exists(out() / "models/log_length-seed1.safetensors"));
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
