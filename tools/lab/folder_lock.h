// FolderLock: one program at a time in an output folder.
#pragma once

#include <filesystem>

namespace isentrope::lab {

// Holds FOLDER/isentrope.lock, and removes it at the end. The kernel releases the lock when a
// process ends, so a file left by a crash locks nothing.
class FolderLock {
 public:
  // Throws Error if another program holds the lock or the file cannot be written.
  explicit FolderLock(const std::filesystem::path& folder);
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  ~FolderLock();

  // Throws Error if a program holds the lock. Changes nothing.
  static void require_free(const std::filesystem::path& folder);

 private:
  std::filesystem::path path_;
  int file_;
};

}  // namespace isentrope::lab
