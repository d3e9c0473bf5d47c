// Files, output and invalid numbers for every command.
#include <fcntl.h>
#include <sys/stat.h>

#include "isentrope/target.h"
#include "tests/support/isentrope.h"

namespace isentrope {
namespace {

namespace fs = std::filesystem;

// Runs a shell command, in which $I is the program.
Outcome shell(const std::string& words) {
  return run_command({"/bin/sh", "-c", "I=" ISENTROPE_PROGRAM "; " + words});
}

const char* const kResult = RESULT_JSON;

TEST(Output, ThatNobodyCanTakeIsAnError) {
  const std::string small = "'shape=1x1x2x2x2'";
  for (const std::string& command : std::vector<std::string>{
           "--help", "scale standard", "scale --list", "scale --help", "scale standard --json",
           "theory entropy", "theory gradient --help", "theory dimension", "theory variance",
           "check " + small, "check --help", "bench --explain " + small, "bench --json " + small,
           "report --help"}) {
    expect_one_line(shell("$I " + command + " > /dev/full"), {"No space left on device"});
    expect_one_line(shell("$I " + command + " >&-"), {"Bad file descriptor"});
  }
  const TemporaryFolder folder;
  const std::string page = (folder / "page.html").string();
  expect_one_line(shell("$I report " + std::string(kResult) + " -o " + page + " > /dev/full"),
                  {"No space left on device"});
  expect_one_line(shell("$I theory report -o " + page + " > /dev/full"),
                  {"No space left on device"});
}

// If standard output is closed, a file opened by the command must not take its place.
TEST(Output, DoesNotEndUpInAnotherFile) {
  const TemporaryFolder folder;
  const fs::path page = folder / "page.html";
  expect_one_line(shell("$I scale standard --report " + page.string() + " >&-"),
                  {"Bad file descriptor"});
  EXPECT_TRUE(read_file(page).ends_with("</html>\n"));
}

class Page : public testing::Test {
 protected:
  // Two commands write pages with the same writer; both are tested.
  std::vector<std::string> commands(const std::string& to) const {
    return {"$I scale standard --report " + to,
            "$I report " + std::string(kResult) + " --output " + to};
  }
  static bool is_page(const std::string& text) {
    return has(text, "<!doctype html>") || has(text, "<!DOCTYPE html>");
  }

  TemporaryFolder folder_;
};

TEST_F(Page, GoesThroughALinkAndKeepsRights) {
  for (const char* target : {"old.html", "new.html"}) {
    const fs::path link = folder_ / (std::string("to-") + target);
    fs::create_symlink(target, link);
    if (target == std::string("old.html")) {
      write_file(folder_ / target, "old");
      fs::permissions(folder_ / target, fs::perms(0640));
    }
    for (const std::string& command : commands(link.string())) {
      const Outcome outcome = shell(command);
      EXPECT_EQ(outcome.code, 0) << outcome.err;
      EXPECT_TRUE(fs::is_symlink(link));
      EXPECT_TRUE(is_page(read_file(folder_ / target)));
    }
  }
  EXPECT_EQ(fs::status(folder_ / "old.html").permissions(), fs::perms(0640));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_ / ""), fs::directory_iterator{}), 4)
      << "two files, two links";
}

TEST_F(Page, GoesIntoADeviceOrAPipe) {
  for (const std::string& command : commands("/dev/null")) {
    EXPECT_EQ(shell(command).code, 0);
    EXPECT_TRUE(fs::is_character_file("/dev/null"));
  }
  const fs::path pipe = folder_ / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  for (const std::string& command : commands(pipe.string())) {
    const fs::path copy = folder_ / "copy";
    const Outcome outcome = shell("cat " + pipe.string() + " > " + copy.string() + " & " + command +
                                  "; code=$?; wait; exit $code");
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_TRUE(fs::is_fifo(pipe));
    EXPECT_TRUE(is_page(read_file(copy)));
  }
  for (const std::string& command : commands("/dev/full"))
    expect_one_line(shell(command), {"No space left on device"});
}

// Output must not be overwritten by other text, nor replace the file that was redirected to.
TEST_F(Page, GoesToStandardOutputAsTheRestDoes) {
  for (const std::string& command : commands("/dev/stdout")) {
    const Outcome outcome = shell("echo before; " + command + "; echo after");
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_TRUE(outcome.out.starts_with("before\n")) << outcome.out.substr(0, 80);
    EXPECT_TRUE(outcome.out.ends_with("/dev/stdout\nafter\n"));
    EXPECT_TRUE(is_page(outcome.out));
    const Outcome piped = shell(command + " | cat");
    EXPECT_TRUE(is_page(piped.out));
  }
}

TEST_F(Page, ThatDoesNotFitLeavesWhatWasThereAndNothingElse) {
  const fs::path page = write_file(folder_ / "page.html", "old");
  for (const std::string& command : commands(page.string())) {
    // With a limit of 8 blocks a write fails in the middle, as on a full disk.
    expect_one_line(shell("trap '' XFSZ; ulimit -f 8; " + command), {"File too large"});
    EXPECT_EQ(read_file(page), "old");
    EXPECT_EQ(std::distance(fs::directory_iterator(page.parent_path()), fs::directory_iterator{}),
              1);
  }
  for (const std::string& command : commands(folder_.operator/("").string()))
    expect_one_line(shell(command), {"Is a directory"});
  for (const std::string& command : commands("''"))
    expect_one_line(shell(command), {"cannot write \"\""});
}

TEST(Input, EndsWhereItCannotBeUsed) {
  const TemporaryFolder folder;
  expect_one_line(run({"scale", "--config", "/dev/zero"}), {"256 MiB"});
  expect_one_line(run({"scale", "--config", folder.operator/("").string()}), {"Is a directory"});
  expect_one_line(run({"scale", "--config", ""}), {"cannot read \"\""});
  expect_one_line(run({"check", "--file", ""}), {"cannot read \"\""});
  expect_one_line(run({"theory", "variance", "--input", ""}), {"cannot read \"\""});
  const fs::path sparse = write_file(folder / "sparse", "");
  fs::resize_file(sparse, std::uintmax_t{1} << 42);
  expect_one_line(run({"report", sparse.string()}), {"memory"});
  // A pipe that ends.
  EXPECT_EQ(shell("echo '{\"model_type\": \"llama\"}' | $I scale --config /dev/stdin").code, 0);
}

TEST(Input, OfReportIsCheckedToTheLastValue) {
  const TemporaryFolder folder;
  for (const auto& [text, words] : std::vector<std::pair<std::string, std::string>>{
           {"{\"kind\":5}", "kind must be"},
           {"{\"kind\":null}", "kind must be"},
           {"{\"kind\":\"photograph\"}", "kind must be"},
           {"5", "must be an object"},
           {"{\"kind\":\"bench\"}", "[bench_report]"},
           {"{\"kind\":\"inspection\",\"version\":1}", "[inspection_report]"},
           {"not JSON", "is not JSON"},
           {"", "is not JSON"}}) {
    expect_one_line(run({"report", write_file(folder / "result.json", text).string()}), {words});
  }
}

TEST(Numbers, NobodyMeansAreRefusedWithTheirLimits) {
  expect_one_line(run({"check", "--generate", "-1"}),
                  {"a whole number from 0 to 10000000 is needed"});
  expect_one_line(run({"check", "--generate", "1000000000"}), {"from 0 to 10000000"});
  expect_one_line(run({"check", "--generate", "1", "--work", "0"}), {"a whole number from 1 to"});
  expect_one_line(run({"check", "--generate", "1", "--seed", "-1"}), {"a whole number from 0 to"});
  expect_one_line(run({"bench", "--repetitions", "0", "shape=1x1x2x2x2"}),
                  {"a whole number from 1 to 1000"});
  for (const char* command : {"check", "bench"}) {
    for (const char* shape : {"1x1x1000000000000x2x64", "1000000000x1000000000x9x9x9",
                              "9223372036854775807x9223372036854775807x1x1x1"}) {
      expect_one_line(run({command, std::string("shape=") + shape}),
                      {"of memory this machine has"});
    }
  }
}

TEST(Arguments, AreNotSwallowedByAnOptionBeforeThem) {
  const std::string target = supported_targets().front(), line = "shape=1x1x2x2x2";
  for (const char* command : {"check", "bench"}) {
    expect_words(output_of({command, "--targets", target, line}), {line});
  }
}

TEST(Help, ListsWhatIsThere) {
  const TemporaryFolder folder;
  const fs::path program = folder / "isentrope";
  fs::copy_file(ISENTROPE_PROGRAM, program);
  const std::string help = "PATH= " + program.string() + " --help";
  const std::string alone = shell(help).out;
  const auto missing = alone.find("not installed here:");
  ASSERT_NE(missing, std::string::npos) << alone;
  for (const char* command :
       {"\n  bench ", "\n  check ", "\n  report ", "\n  scale ", "\n  theory "})
    EXPECT_LT(alone.find(command), missing) << command;
  for (const char* command : {"\n  calibrate ", "\n  doctor ", "\n  evaluate ", "\n  extrapolate ",
                              "\n  inspect ", "\n  tune "})
    EXPECT_GT(alone.find(command), missing) << command;
  EXPECT_EQ(alone.find("isentrope extrapolate --corpus"), std::string::npos) << "an example of it";
  for (const char* name : {"isentrope-calibrate", "isentrope-doctor", "isentrope-evaluate",
                           "isentrope-extrapolate", "isentrope-inspect", "isentrope-tune"}) {
    write_file(folder / name, "#!/bin/sh\necho ran $0 $1\n");
    fs::permissions(folder / name, fs::perms(0755));
  }
  const std::string all = shell(help).out;
  EXPECT_FALSE(has(all, "not installed")) << all;
  expect_words(all, {"isentrope extrapolate --corpus"});
  EXPECT_EQ(shell(program.string() + " inspect model").out,
            "ran " + (folder / "isentrope-inspect").string() + " model\n");
}

}  // namespace
}  // namespace isentrope
