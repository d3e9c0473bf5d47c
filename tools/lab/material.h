// Material: the text as tokens, split into training, validation and test.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "tools/lab/corpus.h"
#include "tools/lab/experiment.h"
#include "tools/lab/tokenizer.h"

namespace isentrope::lab {

struct Material {
  Corpus corpus;
  double test_share = kTestShare;
  std::unique_ptr<Tokenizer> tokenizer;
  Parts<std::vector<Token>> parts;
  std::uint64_t fingerprint = 0;  // of the tokens, part by part

  [[nodiscard]] const std::vector<Token>& part(Part which) const {
    return which == Part::test ? parts.test : parts.validation;
  }
  // Returns the mean bytes of text per token of a part.
  [[nodiscard]] double bytes_per_token(Part which) const;
};

// Reads the corpus and, if requested, trains a tokenizer on its training part. Throws Error if the
// text is too short for the lengths.
[[nodiscard]] Material prepare_material(const ExperimentOptions& options, const RunFolder& folder,
                                        Progress& progress);

}  // namespace isentrope::lab
