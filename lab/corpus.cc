#include "lab/corpus.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <tuple>

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

Parts<std::string_view> split_text(std::string_view text) {
  const auto cut = [&](std::size_t at) {
    while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80U) ++at;
    return at;
  };
  const std::size_t validation = cut(text.size() - text.size() / 10);
  const std::size_t test = cut(text.size() - text.size() / 20);
  return {text.substr(0, validation), text.substr(validation, test - validation),
          text.substr(test)};
}

void require_windows(const Parts<std::vector<Token>>& parts, std::int64_t training,
                     std::int64_t evaluation) {
  const auto size = [](const std::vector<Token>& part) {
    return static_cast<std::int64_t>(part.size());
  };
  const auto [train, validation, test] =
      std::tuple(size(parts.training), size(parts.validation), size(parts.test));
  if (train >= training && std::min(validation, test) >= evaluation) return;
  throw Error(
      fmt::format("[corpus] the text must have {} tokens in its first nine tenths, for a training "
                  "window, and {} "
                  "in each twentieth behind them, for the longest length; got {}, {} and {}",
                  training, evaluation, train, validation, test));
}

}  // namespace isentrope::lab
