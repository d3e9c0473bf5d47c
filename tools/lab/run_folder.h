// RunFolder: files of a run.
//
//   result.json, report.html   of the last run that finished
//   models/                    its trained models (safetensors), and tokenizer.model if it has one
//                              and beside each model NAME.json, its record (measure.h)
//   checkpoints/               the same for a run in progress; becomes models/ when it finishes
//   isentrope.lock             held by the training program, removed when it finishes
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "tools/lab/model_rule.h"

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

class RunFolder {
 public:
  // Handling of an existing run: refuse, continue or replace it.
  enum class Existing { refuse, resume, overwrite };

  // Checks the folder without changing it. Throws Error if it cannot be written, another program
  // trains in it, or it holds a run, finished or not, and `existing` is refuse.
  RunFolder(std::filesystem::path root, Existing existing);

  // Locks the folder, checks it again, and creates what is missing. If a finished run is resumed,
  // its models/ becomes checkpoints/ again; an overwritten one is deleted.
  void open();

  // Returns whether the files belong to this run: it was resumed, or the folder was opened for it.
  [[nodiscard]] bool holds_this_run() const { return existing_ == Existing::resume || lock_; }

  [[nodiscard]] std::filesystem::path checkpoint(const ModelRule& rule, std::uint64_t seed) const;
  [[nodiscard]] std::filesystem::path record(const ModelRule& rule, std::uint64_t seed) const;
  [[nodiscard]] std::filesystem::path tokenizer() const { return saved_ / "tokenizer.model"; }
  [[nodiscard]] std::filesystem::path result() const { return root_ / "result.json"; }
  [[nodiscard]] std::filesystem::path report() const { return root_ / "report.html"; }

  // Renames checkpoints/ to models/ and unlocks the folder.
  void finish();

 private:
  void look();
  [[nodiscard]] std::filesystem::path checkpoints() const { return root_ / "checkpoints"; }
  [[nodiscard]] std::filesystem::path models() const { return root_ / "models"; }

  std::filesystem::path root_;
  Existing existing_;
  std::filesystem::path
      saved_;  // models and tokenizer: checkpoints/, or models/ of the run to resume
  std::optional<FolderLock> lock_;
};

}  // namespace isentrope::lab
