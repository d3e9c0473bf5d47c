// Corpus: text files joined to one text, and the parts of it that training never sees.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
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

// What a text is for: its end tests, the twentieth before that validates, the rest trains.
template <typename T>
struct Parts {
  T training, validation, test;
};

inline constexpr double kTestShare = 0.05, kValidationShare = 0.05;

// Cut between characters. test_share is in [0, 1 - kValidationShare].
[[nodiscard]] Parts<std::string_view> split_text(std::string_view text,
                                                 double test_share = kTestShare);

// Throws Error unless the training part holds `training` tokens, those of a training window, and
// each of the others `evaluation`, those of the longest one.
void require_windows(const Parts<std::vector<Token>>& parts, std::int64_t training,
                     std::int64_t evaluation);

}  // namespace isentrope::lab
