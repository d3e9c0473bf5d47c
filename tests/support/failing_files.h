// Records the calls of a process on the files of one folder, and makes one of them fail.
//
// Linked into a test, or preloaded: LD_PRELOAD=libfailing_files.so with the variables
//
//   FAILING_FILES_FOLDER=PATH    folder to watch
//   FAILING_FILES_RECORD=FILE    a line for each call: open, write, chmod, fsync, close, rename, unlink
//   FAILING_FILES_FAULT="write 2 28"    call, which of them (0: each), errno; 0: half of it is written
#pragma once

#include <string>

namespace isentrope {

struct FileFault {
  std::string call{};
  int which = 1, error = 0;
};

// Records from now on in this process. Not thread-safe.
void record_files(const std::string& folder, const std::string& record, const FileFault& fault);

}  // namespace isentrope
