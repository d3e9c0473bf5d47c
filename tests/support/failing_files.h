// What a process does with the files of one folder, recorded call by call; and the call that fails.
//
// Linked into a test, or in front of a program: LD_PRELOAD=libfailing_files.so with the variables
//
//   FAILING_FILES_FOLDER=PATH    whose files are meant
//   FAILING_FILES_RECORD=FILE    a line for each call: open, write, chmod, fsync, close, rename, unlink
//   FAILING_FILES_FAULT="write 2 28"    call, which of them (0: each), errno; 0: half of it is written
#pragma once

#include <string>

namespace isentrope {

struct FileFault {
  std::string call{};
  int which = 1, error = 0;
};

// From now on, in this process. Not while other threads write.
void record_files(const std::string& folder, const std::string& record, const FileFault& fault);

}  // namespace isentrope
