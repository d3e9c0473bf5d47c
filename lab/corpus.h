// Corpus: text files joined to one text, and the part of it that training never sees.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace isentrope::lab {

using Token = std::int32_t;

// The demo's text, which `make setup` extracts.
inline constexpr const char* kKingJames = "data/king-james.txt";

struct CorpusFile {
  std::string path;
  std::int64_t bytes = 0;
};

struct Corpus {
  std::vector<CorpusFile> files;
  std::string text;
};

// Throws Error naming the file that does not exist, cannot be read or is empty.
[[nodiscard]] Corpus read_corpus(const std::vector<std::string>& paths);

// Characters of a UTF-8 text; bytes that are not UTF-8 count as one each.
[[nodiscard]] std::int64_t count_characters(const std::string& text);

struct Split {
  std::span<const Token> training;
  std::span<const Token> held_out;  // the last tenth
};

[[nodiscard]] Split split_corpus(std::span<const Token> tokens);

// Throws Error unless the training part holds a window of train_length and the held-out part one of
// longest, saying how many tokens that takes.
void require_windows(const Split& split, std::int64_t train_length, std::int64_t longest);

}  // namespace isentrope::lab
