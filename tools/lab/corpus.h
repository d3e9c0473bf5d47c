// Corpus: text files joined to one text, and its held-out parts.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace isentrope::lab {

using Token = std::int32_t;

// Text of the demo, which `make setup` extracts.
inline constexpr const char* kKingJames = "data/king-james.txt";

struct CorpusFile {
  std::string path;
  std::int64_t bytes = 0;
};

struct Corpus {
  std::vector<CorpusFile> files;
  std::string text;
};

// Reads and joins the files. Throws Error naming one that is missing, unreadable or empty.
[[nodiscard]] Corpus read_corpus(const std::vector<std::string>& paths);

// Returns the number of characters of a UTF-8 text; each invalid byte counts as one.
[[nodiscard]] std::int64_t count_characters(const std::string& text);

// Split of a text: the end tests, the twentieth before it validates, the rest trains.
template <typename T>
struct Parts {
  T training, validation, test;
};

inline constexpr double kTestShare = 0.05, kValidationShare = 0.05;

// Splits between characters. test_share is in [0, 1 - kValidationShare].
[[nodiscard]] Parts<std::string_view> split_text(std::string_view text,
                                                 double test_share = kTestShare);

// Throws Error unless the training part holds `training` tokens, a training window, and each other
// part `evaluation`, the longest window.
void require_windows(const Parts<std::vector<Token>>& parts, std::int64_t training,
                     std::int64_t evaluation);

}  // namespace isentrope::lab
