// RunFolder: where a run keeps what it has.
//
//   result.json, report.html   of the last run that finished
//   models/                    its trained models (safetensors), and tokenizer.model if it has one
//   checkpoints/               the same of a run under way; becomes models/ when it finishes
#pragma once

#include <cstdint>
#include <filesystem>

#include "isentrope/scale_rule.h"

namespace isentrope::lab {

class RunFolder {
 public:
  // Looks and changes nothing. Throws Error when the folder cannot be written, or when it holds a
  // run under way and `resume` is false.
  RunFolder(std::filesystem::path root, bool resume);

  // Creates what is missing. When a finished run is resumed, its models/ becomes checkpoints/
  // again.
  void open();

  [[nodiscard]] std::filesystem::path checkpoint(const ScaleRule& rule, std::uint64_t seed) const;
  [[nodiscard]] std::filesystem::path tokenizer() const { return saved_ / "tokenizer.model"; }
  [[nodiscard]] std::filesystem::path result() const { return root_ / "result.json"; }
  [[nodiscard]] std::filesystem::path report() const { return root_ / "report.html"; }

  // checkpoints/ becomes models/.
  void finish();

 private:
  [[nodiscard]] std::filesystem::path checkpoints() const { return root_ / "checkpoints"; }
  [[nodiscard]] std::filesystem::path models() const { return root_ / "models"; }

  std::filesystem::path root_;
  std::filesystem::path
      saved_;  // models and tokenizer: checkpoints/, or models/ of the run to resume
};

}  // namespace isentrope::lab
