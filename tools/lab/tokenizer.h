// Tokenizer: text to tokens and back. Tokens are bytes, or pieces of a SentencePiece model.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tools/lab/corpus.h"

namespace isentrope::lab {

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Number of tokens that text may become: 0, ..., size() - 1. The mask token is one more.
  [[nodiscard]] virtual std::int64_t size() const = 0;
  [[nodiscard]] Token mask_token() const { return static_cast<Token>(size()); }
  [[nodiscard]] std::int64_t vocabulary() const { return size() + 1; }

  // Returns "bytes" or "sentencepiece".
  [[nodiscard]] virtual std::string name() const = 0;
  // Returns the model file's content; empty for bytes.
  [[nodiscard]] virtual std::string model() const { return {}; }

  [[nodiscard]] virtual std::vector<Token> encode(std::string_view text) const = 0;
  [[nodiscard]] virtual std::string decode(const std::vector<Token>& tokens) const = 0;
};

[[nodiscard]] std::unique_ptr<Tokenizer> byte_tokenizer();

// Loads a SentencePiece model, or throws Error. Encodes line by line, as no token ends a line.
[[nodiscard]] std::unique_ptr<Tokenizer> load_tokenizer(const std::string& path);

// Trains a unigram model with that many pieces, which include all bytes. Deterministic. Throws
// Error if the text is too small for so many pieces.
[[nodiscard]] std::unique_ptr<Tokenizer> train_tokenizer(std::string_view text,
                                                         std::int64_t pieces);

}  // namespace isentrope::lab
