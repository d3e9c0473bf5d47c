#include "tools/lab/corpus.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <tuple>

#include "isentrope/error.h"
#include "tools/command/reading.h"

namespace isentrope::lab {
namespace {

std::string text_of(const std::string& path) {
  std::error_code error;
  if (path == kKingJames && !std::filesystem::exists(path, error)) {
    throw Error(fmt::format("[corpus] no such file: {}; `make setup` extracts it", path));
  }
  std::string text = command::read_file(path);
  if (text.empty()) throw Error(fmt::format("[corpus] the file is empty: {}", path));
  return text;
}

}  // namespace

Corpus read_corpus(const std::vector<std::string>& paths) {
  Corpus corpus;
  for (const std::string& path : paths) {
    const std::string text = text_of(path);
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

Parts<std::string_view> split_text(std::string_view text, double test_share) {
  const auto end = [&](double share) {
    return text.size() - static_cast<std::size_t>(static_cast<double>(text.size()) * share);
  };
  const auto character_from = [&](std::size_t at) {
    while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80U) ++at;
    return at;
  };
  const std::size_t validation = character_from(end(test_share + kValidationShare));
  const std::size_t test = character_from(end(test_share));
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
      fmt::format("[corpus] the text must have {} tokens in the part that trains, for a training "
                  "window, and {} in each of those that validate and test, for the longest length; "
                  "got {}, {} and {}",
                  training, evaluation, train, validation, test));
}

}  // namespace isentrope::lab
