// Invalid arguments of isentrope extrapolate and unwritable folders are refused before any work.

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <thread>

#include "tests/support/extrapolate.h"

namespace isentrope::lab {
namespace {

TEST_F(Extrapolate, RefusesBadInput) {
  expect_refused({"--corpus", "/no/such/file"}, "\"/no/such/file\": No such file");
  expect_refused({"--corpus", text("empty", "").string()}, "is empty");
  expect_refused({"--corpus", "/tmp"}, "Is a directory");
  expect_refused({"--corpus", text("short", "Too short.").string()}, "got 10, 1 and 0");
  expect_refused({"--lengths", "8,401"}, "401 in each of those that validate and test");
  expect_refused({"--tokenizer", text("model", make_text(300)).string()},
                 "not a SentencePiece model");
  expect_refused({"--vocabulary", "100000"}, "100000 pieces");
  expect_refused(
      {"--vocabulary", "300", "--corpus", text("lines", std::string(5000, '\n')).string()},
      "a text large enough to train 300 pieces\n");
  expect_refused({"--rules", "standard,entropy"}, "a rule must be one of");
  expect_refused({"--rules", "entropy_invariant(base=0)"}, "base must be above 1");
}

TEST_F(Extrapolate, RefusesBadNumbers) {
  for (const char* option :
       {"--steps", "--train-length", "--lengths", "--seeds", "--layers", "--width", "--heads",
        "--batch", "--learning-rate", "--threads", "--evaluation-tokens", "--vocabulary"}) {
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

TEST_F(Extrapolate, StopsAtALossThatIsNoNumber) {
  const Outcome outcome = run_command(command({"--steps", "300", "--learning-rate", "1e36"}));
  EXPECT_EQ(outcome.code, 1) << outcome.err;
  expect_words(outcome.err, {"the loss of step"});
  EXPECT_FALSE(fs::exists(out() / "result.json"));
}

TEST_F(Extrapolate, RefusesNumbersNobodyMeans) {
  expect_refused({"--vocabulary", "2"}, "a whole number from 260 to 1000000 is needed");
  expect_refused({"--threads", "100000"}, "a whole number from 1 to 1024 is needed");
  expect_refused({"--seeds", "1000000000"}, "a whole number from 1 to 1000 is needed");
  expect_refused({"--layers", "1000000"}, "a whole number from 1 to 1000 is needed");
  expect_refused({"--width", "1000000000"}, "a whole number from 1 to 100000 is needed");
  // Each number is valid, but together they exceed the memory.
  expect_refused({"--layers", "1000", "--width", "100000"}, "or more; this machine has");
  expect_refused({"--batch", "1000000", "--width", "65536", "--layers", "500"}, "[memory]");
}

// Such names are valid on Linux, but JSON cannot represent them.
TEST_F(Extrapolate, TakesNamesThatAreNotUtf8) {
  const std::string corpus = text("text \xff", make_text(4000)).string();
  const fs::path output = out().string() + " \xfe";
  run({"--corpus", corpus, "--output", output.string()});
  const json written = json::parse(read_file(output / "result.json"));
  EXPECT_TRUE(written["corpus"]["files"][0]["path"].get<std::string>().ends_with("text \uFFFD"));
  EXPECT_TRUE(fs::exists(output / "report.html"));
}

TEST_F(Extrapolate, NoticesThatNobodyCanTakeWhatItPrints) {
  std::string line;
  for (const std::string& word : command()) line += " '" + word + "'";
  for (const std::string& words : {std::string(" '" ISENTROPE_EXTRAPOLATE "' --help"), line}) {
    const Outcome outcome = run_command({"/bin/sh", "-c", words + " --quiet > /dev/full"});
    EXPECT_EQ(outcome.code, 2) << words;
    EXPECT_EQ(outcome.err,
              "isentrope extrapolate: cannot write standard output: No space left on device\n");
  }
  EXPECT_EQ(result()["lengths"], (json{8, 32}));
}

// A pipe without a writer stands for long work before the first step.
TEST_F(Extrapolate, EndsAtASignalBeforeTheFirstStep) {
  const fs::path pipe = text("pipe", "");
  fs::remove(pipe);
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  for (const int signal : {SIGTERM, SIGINT}) {
    Command waiting(command({"--corpus", pipe.string()}));
    const int writer = open(pipe.c_str(), O_WRONLY | O_CLOEXEC);  // returns when the program reads
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    waiting.signal(signal);
    EXPECT_EQ(waiting.wait().code, 128 + signal);
    close(writer);
  }
  EXPECT_FALSE(fs::exists(out()));
}

// A program without libtorch parses the options, so that help is fast.
TEST_F(Extrapolate, ReadsItsOptionsWithoutLibtorch) {
  const Outcome libraries =
      run_command({"/bin/sh", "-c", "LD_TRACE_LOADED_OBJECTS=1 " ISENTROPE_EXTRAPOLATE});
  expect_words(libraries.out, {"libc.so"});
  EXPECT_EQ(libraries.out.find("torch"), std::string::npos) << libraries.out;

  const fs::path alone = out().parent_path() / "isentrope-extrapolate";
  fs::copy_file(ISENTROPE_EXTRAPOLATE, alone);
  EXPECT_EQ(run_command({alone.string(), "--help"}).code, 0);
  const Outcome outcome = run_command({alone.string()});
  EXPECT_EQ(outcome.code, 2);
  expect_words(outcome.err, {"isentrope-extrapolate-trainer\": No such file"});
}

}  // namespace
}  // namespace isentrope::lab
