// RunFolder: where a run keeps what it has.
//
//   result.json, report.html   of the last run that finished
//   models/                    its trained models (safetensors), and tokenizer.model if it has one
//                              and beside each model NAME.json, its record: what was measured of it
//   checkpoints/               the same of a run under way; becomes models/ when it finishes
//   isentrope.lock             held by the program that trains, gone when it finishes
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "lab/folder_lock.h"
#include "lab/model_rule.h"

namespace isentrope::lab {

class RunFolder {
 public:
  // What to do with a run that is there: nothing, go on with it, or put another in its place.
  enum class Existing { refuse, resume, overwrite };

  // Looks and changes nothing. Throws Error when the folder cannot be written, when another program
  // trains in it, or when it holds a run, under way or finished, that is to be refused.
  RunFolder(std::filesystem::path root, Existing existing);

  // Locks the folder, looks once more, and creates what is missing. When a finished run is resumed,
  // its models/ becomes checkpoints/ again; one that is overwritten goes.
  void open();

  // Whether what lies there is of this run: it is resumed, or the folder was opened for it.
  [[nodiscard]] bool holds_this_run() const { return existing_ == Existing::resume || lock_; }

  [[nodiscard]] std::filesystem::path checkpoint(const ModelRule& rule, std::uint64_t seed) const;
  [[nodiscard]] std::filesystem::path record(const ModelRule& rule, std::uint64_t seed) const;
  [[nodiscard]] std::filesystem::path tokenizer() const { return saved_ / "tokenizer.model"; }
  [[nodiscard]] std::filesystem::path result() const { return root_ / "result.json"; }
  [[nodiscard]] std::filesystem::path report() const { return root_ / "report.html"; }

  // checkpoints/ becomes models/, and the folder is free.
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
