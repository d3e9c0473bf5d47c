// Writing: whichever call fails, or power at any moment, the old file or the new one exists.

#include "src/files/writing.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sstream>
#include <vector>

#include "isentrope/error.h"
#include "tests/support/failing_files.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"

namespace isentrope {
namespace {

namespace fs = std::filesystem;

// A folder, and a record of the calls on its files next to it.
class Recorded {
 public:
  ~Recorded() { record_files("/nowhere", "/dev/null", {}); }

  // Starts recording, in another folder if it is given.
  void begin(const FileFault& fault, const std::string& of = "") {
    fs::create_directory(outer_ / "files");
    fs::remove(outer_ / "record");
    record_files(of.empty() ? (outer_ / "files").string() : of, (outer_ / "record").string(),
                 fault);
  }
  [[nodiscard]] fs::path path() const { return outer_ / "files" / "result.json"; }
  // Returns "open", "write", ..., each with file names relative to the folder.
  [[nodiscard]] std::vector<std::string> calls() const {
    const std::string folder = (outer_ / "files").string();
    std::istringstream lines(read_file(outer_ / "record"));
    std::vector<std::string> result;
    for (std::string line; std::getline(lines, line);) {
      for (std::size_t at; (at = line.find(folder)) != std::string::npos;)
        line.replace(at, folder.size(), "FOLDER");
      result.push_back(line);
    }
    return result;
  }
  [[nodiscard]] bool left_a_trace() const {
    return std::ranges::any_of(fs::directory_iterator(outer_ / "files"),
                               [&](const auto& entry) { return entry.path() != path(); });
  }

 private:
  TemporaryFolder outer_;
};

const std::string kNew(100000, 'n');

// Returns whether the new content arrived; requires either the old or the new content.
bool arrived(const Recorded& recorded, bool existed) {
  const std::string found = read_file(recorded.path());
  if (found == kNew) return true;
  EXPECT_EQ(found, existed ? "old" : "");
  EXPECT_EQ(fs::exists(recorded.path()), existed);
  return false;
}

// Returns how often the call occurs while a file is written.
std::int64_t count_of(const std::string& call, bool existed) {
  Recorded recorded;
  recorded.begin({});
  if (existed) write_file(recorded.path(), "old");
  recorded.begin({});
  command::write_file(recorded.path(), kNew);
  return std::ranges::count_if(
      recorded.calls(), [&](const std::string& line) { return line.starts_with(call + " "); });
}

TEST(Writing, WhicheverCallFailsTheOldFileOrTheNewOneIsThere) {
  for (const bool existed : {false, true}) {
    for (const char* call : {"open", "write", "chmod", "fsync", "close", "rename"}) {
      const std::int64_t count = count_of(call, existed);
      EXPECT_EQ(count > 0, call != std::string("chmod") || existed) << call;
      for (std::int64_t which = 1; which <= count; ++which) {
        for (const int error : {ENOSPC, EIO}) {
          SCOPED_TRACE(call + std::to_string(which) + ": " + std::strerror(error));
          Recorded recorded;
          recorded.begin({});
          if (existed) write_file(recorded.path(), "old");
          recorded.begin({call, static_cast<int>(which), error});
          // Closing a folder that was only read loses nothing.
          const bool harmless = call == std::string("close") && which == count;
          try {
            command::write_file(recorded.path(), kNew);
            EXPECT_TRUE(harmless);
          } catch (const Error& said) {
            EXPECT_FALSE(harmless);
            EXPECT_EQ(said.what(),
                      "cannot write \"" + recorded.path().string() + "\": " + std::strerror(error));
          }
          // Calls on the folder come last.
          const bool of_folder =
              std::string("open fsync close").find(call) != std::string::npos && which == count;
          EXPECT_EQ(arrived(recorded, existed), of_folder);
          EXPECT_FALSE(recorded.left_a_trace());
        }
      }
    }
  }
}

TEST(Writing, InterruptedCallsAndShortWritesGoOn) {
  for (const FileFault& fault :
       {FileFault{"open", 1, EINTR}, FileFault{"open", 2, EINTR}, FileFault{"write", 1, EINTR},
        FileFault{"fsync", 1, EINTR}, FileFault{"fsync", 2, EINTR}, FileFault{"close", 1, EINTR},
        FileFault{"write", 0, 0}}) {
    SCOPED_TRACE(fault.call + std::to_string(fault.which));
    Recorded recorded;
    recorded.begin(fault);
    command::write_file(recorded.path(), kNew);
    EXPECT_TRUE(arrived(recorded, false));
    EXPECT_FALSE(recorded.left_a_trace());
  }
}

TEST(Writing, DataIsOnTheDiskBeforeTheNameAndTheNameBeforeTheEnd) {
  Recorded recorded;
  recorded.begin({});
  write_file(recorded.path(), "old");
  const std::vector<std::string_view> parts = {"a", "", "b"};
  recorded.begin({"nothing"});
  command::write_file(recorded.path(), parts);
  const std::string part = "FOLDER/result.json.part";
  EXPECT_EQ(recorded.calls(),
            (std::vector<std::string>{"open " + part, "chmod " + part, "write " + part,
                                      "write " + part, "fsync " + part, "close " + part,
                                      "rename " + part + " to FOLDER/result.json", "open FOLDER",
                                      "fsync FOLDER", "close FOLDER"}));
}

TEST(Writing, AFileSystemThatSynchronisesNoFoldersWillDo) {
  Recorded recorded;
  recorded.begin({"fsync", 2, EINVAL});
  command::write_file(recorded.path(), kNew);
  EXPECT_TRUE(arrived(recorded, false));
}

TEST(Writing, WhatCannotBeWrittenIsSaidBeforeTheWork) {
  Recorded recorded;
  recorded.begin({});
  const fs::path deep = recorded.path().parent_path() / "a" / "b" / "result.json";
  command::require_writable(deep);
  EXPECT_TRUE(fs::is_directory(deep.parent_path()));
  const auto said = [](const fs::path& path) {
    return message_of([&] { command::require_writable(path); });
  };
  EXPECT_EQ(said(deep.parent_path()),
            "cannot write \"" + deep.parent_path().string() + "\": it is a folder");
  EXPECT_EQ(said("/dev/fd/1000"), "cannot write \"/dev/fd/1000\": Bad file descriptor");
  recorded.begin({"access", 0, EACCES});
  EXPECT_EQ(said(deep), "cannot write \"" + deep.string() + "\": Permission denied");
  // Devices are writable even if their folder is not.
  recorded.begin({"access", 2, EACCES}, "/dev");
  EXPECT_EQ(said("/dev/null"), "");
  EXPECT_EQ(said("/dev/new"), "cannot write \"/dev/new\": Permission denied");
}

}  // namespace
}  // namespace isentrope
