// isentrope extrapolate when interrupted, with a run in its folder, and with a folder in use.

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "tests/support/extrapolate.h"

namespace isentrope::lab {
namespace {

class ExtrapolateAgain : public Extrapolate {};

void wait_for(const fs::path& file) {
  for (int i = 0; i < 3000 && !fs::exists(file); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  ASSERT_TRUE(fs::exists(file)) << file;
}

const Arguments kLong{"--steps", "1500"};  // long enough to be interrupted
const char* const kFirstModel = "checkpoints/standard-seed1.safetensors";

TEST_F(ExtrapolateAgain, ResumesAfterCtrlCOrAKillWithTheSameBits) {
  run(kLong);
  const json whole = result();
  fs::rename(out(), out().string() + "-whole");
  for (const int signal : {SIGINT, SIGKILL}) {
    fs::remove_all(out());
    Command first(command(kLong));
    wait_for(out() / kFirstModel);
    first.signal(signal);
    const Outcome interrupted = first.wait();
    EXPECT_EQ(interrupted.code, 128 + signal) << interrupted.err;
    if (signal == SIGINT) expect_words(interrupted.err, {"--resume"});
    EXPECT_FALSE(fs::exists(out() / "result.json"));
    expect_one_line(run_command(command(kLong)), {"holds a started run: add --resume"});

    run(with(kLong, {"--resume"}));
    expect_same_bits(out() / "models", out().string() + "-whole/models");
    for (const char* member : {"loss", "accuracy", "entropy", "gradient_mass", "cross_entropy"})
      EXPECT_EQ(result()["rules"][1][member], whole["rules"][1][member]) << member;
  }
}

TEST_F(ExtrapolateAgain, DoesNotTrainAFinishedRuleAgain) {
  run({"--rules", "standard"});
  const json before = result();
  const Outcome more = run({"--rules", "standard,log_length", "--resume"});
  EXPECT_FALSE(has(more.err, "standard: step")) << more.err;
  expect_words(more.err, {"log_length: step 20 of 20"});
  EXPECT_EQ(result()["rules"][0], before["rules"][0]);
}

TEST_F(ExtrapolateAgain, OverwritesAFinishedRunOnlyWhenTold) {
  run({"--rules", "standard,log_length"});
  const std::string before = read_file(out() / "result.json");
  expect_one_line(run_command(command()), {"holds a finished run: add --resume"});
  EXPECT_EQ(read_file(out() / "result.json"), before);
  run({"--overwrite"});
  EXPECT_FALSE(fs::exists(out() / "models/log_length-seed1.safetensors"));
  EXPECT_TRUE(fs::exists(out() / "models/standard-seed1.json"));
}

// A record without its model suffices, as in folders that keep only results: nothing is trained.
TEST_F(ExtrapolateAgain, ARecordWithoutItsModelIsEnough) {
  run();
  const json before = result();
  for (const auto& entry : fs::directory_iterator(out() / "models")) {
    if (entry.path().extension() == ".safetensors") fs::remove(entry.path());
  }
  const Outcome again = run({"--resume"});
  EXPECT_FALSE(has(again.err, "step")) << again.err;
  EXPECT_EQ(result()["rules"], before["rules"]);

  // Non-finite numbers stay null.
  const fs::path record = out() / "models/standard-seed1.json";
  json measured = json::parse(read_file(record));
  measured["rows"][0]["cross_entropy"][1] = nullptr;
  measured["gains"]["accuracy"][1][0] = nullptr;
  write_file(record, measured.dump());
  run({"--resume"});
  EXPECT_TRUE(result()["rules"][0]["cross_entropy"]["32"].is_null());
  EXPECT_EQ(result()["rules"][0]["accuracy"], before["rules"][0]["accuracy"]);

  // Other lengths need a new measurement.
  const Outcome other = run({"--resume", "--lengths", "8,16"});
  expect_words(other.err, {"step 20 of 20"});
}

// A record of an earlier version lacks a measure: the model is measured again, but not trained.
TEST_F(ExtrapolateAgain, MeasuresAgainWhatARecordLacks) {
  run();
  const json before = result();
  const fs::path record = out() / "models/standard-seed1.json";
  json measured = json::parse(read_file(record));
  for (json& row : measured["rows"]) row.erase("distance");
  write_file(record, measured.dump());
  const Outcome again = run({"--resume"});
  EXPECT_FALSE(has(again.err, ": step")) << again.err;
  EXPECT_EQ(result()["rules"], before["rules"]);
}

TEST_F(ExtrapolateAgain, RefusesToResumeAnotherRun) {
  run();
  const std::string before = read_file(out() / "result.json");
  const fs::path model = out() / "models/standard-seed1.safetensors";
  const auto refused = [&](const Arguments& more, const std::string& says) {
    expect_one_line(run_command(command(with({"--resume"}, more))), {says});
    EXPECT_EQ(read_file(out() / "result.json"), before);
    EXPECT_TRUE(fs::exists(model));
  };
  refused({"--width", "16"}, "width is 8 there and 16 here");
  refused({"--steps", "30"}, "steps is 20 there and 30 here");
  refused({"--corpus", text("other.txt", make_text(5000)).string()},
          "another configuration: corpus");
  fs::remove(out() / "models/standard-seed1.json");
  fs::resize_file(model, 1000);
  refused({}, "is damaged: " + model.string() + " was truncated; remove it");
}

// A damaged record is found before anything is changed.
TEST_F(ExtrapolateAgain, RefusesARecordThatIsDamaged) {
  run({"--rules", "standard"});
  const std::string before = read_file(out() / "result.json");
  const fs::path record = out() / "models/standard-seed1.json";
  const json whole = json::parse(read_file(record));
  const auto refused = [&](const std::string& content, const std::string& more = "") {
    SCOPED_TRACE(content.substr(0, 200));
    write_file(record, content);
    expect_one_line(run_command(command({"--rules", "standard", "--resume"})),
                    {"the file is damaged: " + record.string() + more});
    EXPECT_EQ(read_file(out() / "result.json"), before);
  };
  for (const char* content : {"", "{", "7", "[]", "{}", "\xff"}) refused(content);
  for (const std::size_t size : {std::size_t{1}, whole.dump().size() / 2, whole.dump().size() - 1})
    refused(whole.dump().substr(0, size), " was truncated; remove it");
  const std::vector<std::pair<std::string, json>> wrong = {{"/configuration", 1},
                                                           {"/evaluation/lengths", 1},
                                                           {"/rule", 1},
                                                           {"/seed", "one"},
                                                           {"/seconds_per_step", "slow"},
                                                           {"/rows", json::array()},
                                                           {"/rows/0", 1},
                                                           {"/rows/0/kind", 1},
                                                           {"/rows/0/accuracy", {1}},
                                                           {"/rows/0/tokens", 1},
                                                           {"/rows/0/entropy/0", "high"},
                                                           {"/loss", "low"},
                                                           {"/gains/gain", 1},
                                                           {"/gains/cross_entropy/0", {1}},
                                                           {"/parameters", json::array()},
                                                           {"/rows/0/rule", 1.5}};
  for (const auto& [pointer, value] : wrong) {
    json changed = whole;
    changed[json::json_pointer(pointer)] = value;
    refused(changed.dump());
  }
  write_file(record, whole.dump());
  run({"--rules", "standard", "--resume"});
}

// The second of two runs in one folder is refused at once with any options, and the first is
// unaffected. The kernel holds the lock, so a killed program's file locks nothing.
TEST_F(ExtrapolateAgain, RefusesAFolderInWhichAnotherTrains) {
  Command first(command(kLong));
  wait_for(out() / kFirstModel);
  for (const Arguments& more : {Arguments{}, Arguments{"--resume"}, Arguments{"--overwrite"}}) {
    const Outcome second = run_command(command(with(kLong, more)));
    EXPECT_EQ(second.code, 2);
    EXPECT_EQ(second.err, "isentrope extrapolate: [output] " + out().string() +
                              " is in use: another isentrope extrapolate trains there\n");
  }
  first.signal(SIGKILL);
  EXPECT_EQ(first.wait().code, 128 + SIGKILL);
  EXPECT_TRUE(fs::exists(out() / "isentrope.lock"));
  run(with(kLong, {"--resume"}));
  EXPECT_FALSE(fs::exists(out() / "isentrope.lock"));
}

}  // namespace
}  // namespace isentrope::lab
