#include "lab/corpus.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#include "isentrope/error.h"

namespace isentrope::lab {
namespace {

std::string read_file(const std::string& path) {
  const std::filesystem::file_status status = std::filesystem::status(path);
  if (!std::filesystem::exists(status)) {
    throw Error(fmt::format("[corpus] no such file: {}{}", path,
                            path == kKingJames ? "; `make setup` extracts it" : ""));
  }
  if (std::filesystem::is_directory(status)) {
    throw Error(fmt::format("[corpus] a file is needed; got the directory {}", path));
  }
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file) throw Error(fmt::format("[corpus] the file cannot be read: {}", path));
  if (text.empty()) throw Error(fmt::format("[corpus] the file is empty: {}", path));
  return text;
}

}  // namespace

Corpus read_corpus(const std::vector<std::string>& paths) {
  Corpus corpus;
  for (const std::string& path : paths) {
    const std::string text = read_file(path);
    corpus.files.push_back({path, static_cast<std::int64_t>(text.size())});
    corpus.text += text;
    if (!text.ends_with('\n')) corpus.text += '\n';
  }
  return corpus;
}

std::int64_t count_characters(const std::string& text) {
  return std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; });
}

Split split_corpus(std::span<const Token> tokens) {
  const std::size_t training = tokens.size() - tokens.size() / 10;
  return {tokens.first(training), tokens.subspan(training)};
}

void require_windows(const Split& split, std::int64_t train_length, std::int64_t longest) {
  const auto training = static_cast<std::int64_t>(split.training.size());
  const auto held_out = static_cast<std::int64_t>(split.held_out.size());
  if (training >= train_length && held_out >= longest) return;
  const std::int64_t needed = std::max(10 * longest, (10 * train_length + 8) / 9);
  throw Error(
      fmt::format("[corpus] the last tenth must hold {} tokens, the longest length, and the rest "
                  "{}, the training length: "
                  "at least {} tokens in all; got {}",
                  longest, train_length, needed, training + held_out));
}

}  // namespace isentrope::lab
