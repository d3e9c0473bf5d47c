// Material: the text as tokens, cut into what trains, validates and tests.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "lab/corpus.h"
#include "lab/experiment.h"
#include "lab/tokenizer.h"

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
  // Bytes of that part's text to a token.
  [[nodiscard]] double bytes_per_token(Part which) const;
};

// Reads the corpus and trains a tokenizer on its training part where one is wanted. Throws Error
// when the text is too short for the lengths.
[[nodiscard]] Material prepare_material(const ExperimentOptions& options, const RunFolder& folder,
                                        Progress& progress);

}  // namespace isentrope::lab
