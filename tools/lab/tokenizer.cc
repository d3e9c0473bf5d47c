#include "tools/lab/tokenizer.h"

#include <fmt/format.h>
#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <utility>

#include "isentrope/error.h"
#include "tools/command/reading.h"

namespace isentrope::lab {
namespace {

class ByteTokenizer final : public Tokenizer {
 public:
  std::int64_t size() const override { return 256; }
  std::string name() const override { return "bytes"; }

  std::vector<Token> encode(std::string_view text) const override {
    std::vector<Token> tokens;
    tokens.reserve(text.size());
    for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
    return tokens;
  }

  std::string decode(const std::vector<Token>& tokens) const override {
    std::string text;
    for (const Token token : tokens) text += static_cast<char>(token);
    return text;
  }
};

// Calls use(line) for each non-empty line.
template <typename Use>
void for_each_line(std::string_view text, const Use& use) {
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    if (end != 0) use(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
}

class PieceTokenizer final : public Tokenizer {
 public:
  // Throws Error with `complaint` if the model is invalid.
  PieceTokenizer(std::string model, const std::string& complaint) : model_(std::move(model)) {
    if (model_.empty() || !processor_.LoadFromSerializedProto(model_).ok()) throw Error(complaint);
  }

  std::int64_t size() const override { return processor_.GetPieceSize(); }
  std::string name() const override { return "sentencepiece"; }
  std::string model() const override { return model_; }

  std::vector<Token> encode(std::string_view text) const override {
    std::vector<Token> tokens;
    for_each_line(text, [&](std::string_view line) {
      const std::vector<int> ids = processor_.EncodeAsIds({line.data(), line.size()});
      tokens.insert(tokens.end(), ids.begin(), ids.end());
    });
    return tokens;
  }

  std::string decode(const std::vector<Token>& tokens) const override {
    return processor_.DecodeIds(std::vector<int>(tokens.begin(), tokens.end()));
  }

 private:
  std::string model_;
  sentencepiece::SentencePieceProcessor processor_;
};

class Lines final : public sentencepiece::SentenceIterator {
 public:
  explicit Lines(std::string_view text) {
    for_each_line(text, [this](std::string_view line) { lines_.emplace_back(line); });
  }
  bool done() const override { return next_ == lines_.size(); }
  void Next() override { ++next_; }
  const std::string& value() const override { return lines_[next_]; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  std::vector<std::string> lines_;
  std::size_t next_ = 0;
};

}  // namespace

std::unique_ptr<Tokenizer> byte_tokenizer() { return std::make_unique<ByteTokenizer>(); }

std::unique_ptr<Tokenizer> load_tokenizer(const std::string& path) {
  return std::make_unique<PieceTokenizer>(
      command::read_file(path), fmt::format("[tokenizer] not a SentencePiece model: {}", path));
}

std::unique_ptr<Tokenizer> train_tokenizer(std::string_view text, std::int64_t pieces) {
  Lines lines(text);
  std::string model;
  const auto status =
      sentencepiece::SentencePieceTrainer::Train({{"vocab_size", std::to_string(pieces)},
                                                  {"byte_fallback", "true"},
                                                  {"normalization_rule_name", "identity"},
                                                  {"remove_extra_whitespaces", "false"},
                                                  {"num_threads", "1"},
                                                  {"minloglevel", "2"}},
                                                 &lines, &model);
  std::string reason = status.message();  // "file(line) [condition] Message."
  reason.erase(0, reason.rfind("] ") == std::string::npos ? 0 : reason.rfind("] ") + 2);
  const std::string complaint =
      fmt::format("[tokenizer] the corpus must be a text large enough to train {} pieces{}{}",
                  pieces, reason.empty() ? "" : "; SentencePiece says: ", reason);
  if (!status.ok()) throw Error(complaint);
  return std::make_unique<PieceTokenizer>(std::move(model), complaint);
}

}  // namespace isentrope::lab
