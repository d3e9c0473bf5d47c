// FolderLock: one program at a time in an output folder.
#pragma once

#include <filesystem>

namespace isentrope::lab {

// Holds FOLDER/isentrope.lock, and removes it at the end. The kernel keeps the lock, not the file:
// what a crash leaves behind locks nothing.
class FolderLock {
 public:
  // Throws Error when another program holds it, or when the file cannot be written.
  explicit FolderLock(const std::filesystem::path& folder);
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  ~FolderLock();

  // Changes nothing. Throws Error when a program holds the lock.
  static void require_free(const std::filesystem::path& folder);

 private:
  std::filesystem::path path_;
  int file_;
};

}  // namespace isentrope::lab
