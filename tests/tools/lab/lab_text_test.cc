// From files to masked tokens.

#include "tests/support/lab_text.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "isentrope/error.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/words.h"
#include "tools/lab/corpus.h"
#include "tools/lab/examples.h"
#include "tools/lab/tokenizer.h"

namespace isentrope::lab {
namespace {

std::vector<Token> count_up(std::int64_t n) {
  std::vector<Token> tokens(static_cast<std::size_t>(n));
  std::iota(tokens.begin(), tokens.end(), 0);
  return tokens;
}

TEST(Corpus, JoinsFilesWithALineBreak) {
  const TemporaryFolder folder;
  const auto a = write_file(folder / "a", "one"), b = write_file(folder / "b", "two\n");
  const Corpus corpus = read_corpus({a.string(), b.string()});
  EXPECT_EQ(corpus.text, "one\ntwo\n");
  ASSERT_EQ(corpus.files.size(), 2U);
  EXPECT_EQ(corpus.files[1].bytes, 4);
}

TEST(Corpus, CountsCharactersNotBytes) { EXPECT_EQ(count_characters("naïve ⌘"), 7); }

TEST(Corpus, ATwentiethValidatesAndAsMuchIsForTestingAsIsAskedFor) {
  const std::string text = make_text(1000).substr(0, 1000);
  for (const auto& [parts, test] :
       {std::pair{split_text(text), 50}, {split_text(text, 0.2), 200}}) {
    EXPECT_NEAR(static_cast<double>(parts.training.size()), 950 - test, 1);
    EXPECT_NEAR(static_cast<double>(parts.validation.size()), 50, 1);
    EXPECT_NEAR(static_cast<double>(parts.test.size()), test, 1);
    EXPECT_EQ(std::string(parts.training) + std::string(parts.validation) + std::string(parts.test),
              text);
  }
}

TEST(Corpus, IsCutBetweenCharacters) {
  std::string text;
  for (int i = 0; i < 37; ++i) text += "⌘";
  const Parts<std::string_view> parts = split_text(text);
  for (const std::string_view part : {parts.training, parts.validation, parts.test}) {
    ASSERT_FALSE(part.empty());
    EXPECT_EQ(part.size() % 3, 0U);
  }
}

TEST(Corpus, SaysHowManyTokensTheLengthsTake) {
  const Parts<std::vector<Token>> parts{count_up(100), count_up(10), count_up(9)};
  EXPECT_NO_THROW(require_windows(parts, 100, 9));
  EXPECT_THROW(require_windows(parts, 101, 9), Error);
  expect_words(message_of([&] { require_windows(parts, 16, 10); }), {"got 100, 10 and 9"});
}

TEST(Tokenizer, BytesRoundTrip) {
  std::string all;
  for (int i = 0; i < 256; ++i) all += static_cast<char>(i);
  const auto tokenizer = byte_tokenizer();
  const std::vector<Token> tokens = tokenizer->encode(all);
  EXPECT_EQ(tokens, count_up(256));
  EXPECT_EQ(tokenizer->decode(tokens), all);
  EXPECT_EQ(tokenizer->mask_token(), 256);
  EXPECT_EQ(tokenizer->vocabulary(), 257);
}

TEST(Tokenizer, TrainedPiecesRoundTripTextTheyNeverSaw) {
  const auto tokenizer = train_tokenizer(make_text(20000), 285);
  EXPECT_EQ(tokenizer->size(), 285);
  const std::string text = "the row  sees ∞ keys";
  const std::vector<Token> tokens = tokenizer->encode(text);
  EXPECT_EQ(tokenizer->decode(tokens), text);
  for (const Token token : tokens) EXPECT_LT(token, tokenizer->mask_token());
}

TEST(Tokenizer, SavedPiecesLoad) {
  const TemporaryFolder folder;
  const std::string text = make_text(20000);
  const auto trained = train_tokenizer(text, 285);
  const auto loaded =
      load_tokenizer(write_file(folder / "tokenizer.model", trained->model()).string());
  EXPECT_EQ(loaded->encode(text), trained->encode(text));
}

TEST(Tokenizer, RefusesAFileThatIsNone) {
  const TemporaryFolder folder;
  EXPECT_THROW((void)load_tokenizer(write_file(folder / "empty", "").string()), Error);
  EXPECT_THROW((void)load_tokenizer((folder / "none").string()), Error);
}

// 15 % within five standard deviations, and 80, 10 and 10 % of these.
TEST(Masking, HasTheProportionsOfBert) {
  const Token mask_token = 1000000;  // a random token then differs from the old one
  const std::vector<Token> tokens = count_up(200000);
  const Examples masked = mask_tokens(tokens, mask_token, 1);
  const auto n = static_cast<double>(masked.positions.size());
  EXPECT_NEAR(n / 200000, 0.15, 0.004);
  double mask = 0, same = 0;
  for (std::size_t i = 0; i < masked.positions.size(); ++i) {
    const std::int64_t input = masked.inputs[static_cast<std::size_t>(masked.positions[i])];
    EXPECT_EQ(masked.targets[i], masked.positions[i]);
    mask += input == mask_token;
    same += input == masked.targets[i];
  }
  EXPECT_NEAR(mask / n, 0.8, 0.012);
  EXPECT_NEAR(same / n, 0.1, 0.009);
  EXPECT_NEAR((n - mask - same) / n, 0.1, 0.009);
}

TEST(Masking, LeavesOtherTokensAlone) {
  const std::vector<Token> tokens = count_up(500);
  const Examples masked = mask_tokens(tokens, 1000, 3);
  for (std::int64_t i = 0; i < 500; ++i) {
    const bool chosen = std::ranges::binary_search(masked.positions, i);
    EXPECT_TRUE(chosen || masked.inputs[static_cast<std::size_t>(i)] == i) << i;
  }
}

TEST(Masking, DependsOnTheSeedAndNothingElse) {
  const std::vector<Token> tokens = count_up(1000);
  EXPECT_EQ(mask_tokens(tokens, 1000, 5).inputs, mask_tokens(tokens, 1000, 5).inputs);
  EXPECT_NE(mask_tokens(tokens, 1000, 5).inputs, mask_tokens(tokens, 1000, 6).inputs);
}

TEST(Masking, InPiecesIsAsInOne) {
  const std::vector<Token> tokens = count_up(1000);
  const Examples whole = mask_tokens(tokens, 1000, 5);
  const Examples part = mask_tokens(std::span(tokens).subspan(400), 1000, 5, 400);
  EXPECT_TRUE(std::ranges::equal(std::span(whole.inputs).subspan(400), part.inputs));
}

TEST(Masking, MasksAtLeastOneToken) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    EXPECT_GE(mask_tokens(count_up(2), 10, seed).positions.size(), 1U);
  }
}

TEST(NextTokens, AreThoseBehind) {
  const Examples next = next_tokens(std::vector<Token>{5, 6, 7});
  EXPECT_EQ(next.inputs, (std::vector<std::int64_t>{5, 6}));
  EXPECT_EQ(next.targets, (std::vector<std::int64_t>{6, 7}));
  EXPECT_EQ(next.positions, (std::vector<std::int64_t>{0, 1}));
}

}  // namespace
}  // namespace isentrope::lab
