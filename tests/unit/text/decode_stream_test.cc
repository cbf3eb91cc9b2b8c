#include "text/decode_stream.h"

#include <gtest/gtest.h>
#include <octavo/error.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <random>

#include "test_support.h"
#include "text/tokenizer.h"

namespace octavo {
namespace {

using testing::FixturePath;

const Tokenizer& Llama() {
  static const Tokenizer tokenizer =
      Tokenizer::FromFile(FixturePath("trained/lm_llama/tokenizer.json"));
  return tokenizer;
}

std::string Stream(const Tokenizer& tokenizer, const std::vector<int64_t>& ids, bool skip_special) {
  DecodeStream stream(tokenizer, skip_special);
  std::string text;
  for (int64_t id : ids) text += stream.Push(id);
  return text + stream.Flush();
}

// The id of a byte in the byte-level vocabulary.
std::vector<int64_t> ByteIds(std::string_view bytes) {
  std::vector<int64_t> ids;
  for (size_t i = 0; i < bytes.size(); ++i) {
    const auto byte = static_cast<unsigned char>(bytes[i]);
    const auto plain = [](int b) {
      return (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
    };
    int symbol = byte;
    if (!plain(byte)) {
      symbol = 0x100;
      for (int b = 0; b < byte; ++b) symbol += !plain(b);
    }
    std::string token;
    if (symbol < 0x80) {
      token = {static_cast<char>(symbol)};
    } else {
      token = {static_cast<char>(0xc0 | symbol >> 6), static_cast<char>(0x80 | (symbol & 0x3f))};
    }
    const std::optional<int64_t> id = Llama().TokenToId(token);
    EXPECT_TRUE(id.has_value()) << token;
    ids.push_back(id.value_or(0));
  }
  return ids;
}

TEST(DecodeStreamTest, PiecesTogetherAreTheText) {
  for (const char* name : {"eval_kjv.txt", "eval_python.txt"}) {
    const std::string text =
        testing::ReadWholeFile(FixturePath(std::string("trained/lm_llama/") + name));
    EXPECT_EQ(Stream(Llama(), Llama().Encode(text), true), text);
  }
  const Tokenizer bert = Tokenizer::FromFile(FixturePath("trained/cls_bert/tokenizer.json"));
  const std::vector<int64_t> ids = bert.Encode("I cannot log in, please help: it's urgent!");
  EXPECT_EQ(Stream(bert, ids, true), bert.Decode(ids, true));
  EXPECT_EQ(Stream(bert, ids, false), bert.Decode(ids, false));
}

TEST(DecodeStreamTest, CharactersAreGivenOutWhole) {
  DecodeStream stream(Llama(), true);
  std::vector<std::string> pieces;
  for (int64_t id : ByteIds("é中😀")) pieces.push_back(stream.Push(id));
  EXPECT_EQ(pieces, (std::vector<std::string>{"", "é", "", "", "中", "", "", "", "😀"}));
  EXPECT_EQ(stream.Flush(), "");
}

TEST(DecodeStreamTest, InvalidUtf8AtTheEndIsFlushed) {
  for (std::string_view bytes :
       {"ab\xe4", "ab\xe4\xb8", "\xf0\x9f\x98", "a\x80", "a\xef\xbf\xbd"}) {
    const std::vector<int64_t> ids = ByteIds(bytes);
    EXPECT_EQ(Stream(Llama(), ids, true), Llama().Decode(ids)) << ::testing::PrintToString(bytes);
  }
}

TEST(DecodeStreamTest, AnyIdsEqualFullDecoding) {
  std::mt19937 random(1);
  for (int round = 0; round < 500; ++round) {
    std::vector<int64_t> ids(random() % 60);
    // Half of them from the single bytes, which come first behind the special tokens.
    for (int64_t& id : ids) id = random() % 2 ? random() % 270 : random() % 2100;
    for (bool skip_special : {true, false}) {
      EXPECT_EQ(Stream(Llama(), ids, skip_special), Llama().Decode(ids, skip_special));
    }
  }
}

TEST(DecodeStreamTest, RunsOfBadBytesAreNotHeldBack) {
  DecodeStream stream(Llama(), true);
  const int64_t id = ByteIds("\x80")[0];
  size_t replacements = 0;
  for (size_t i = 0; i < 5000; ++i) {
    replacements += stream.Push(id).size() / 3;
    ASSERT_LE(i + 1 - replacements, 8u);
  }
  EXPECT_EQ(replacements + stream.Flush().size() / 3, 5000u);
}

TEST(DecodeStreamTest, ThePromptIsContextAndNotText) {
  const std::vector<int64_t> prompt = Llama().Encode("In the beginning");
  DecodeStream stream(Llama(), true, prompt);
  std::string text;
  for (int64_t id : Llama().Encode(" God created", false)) text += stream.Push(id);
  EXPECT_EQ(text + stream.Flush(), " God created");

  // WordPiece joins words with spaces: without the prompt the first word has none.
  const Tokenizer bert = Tokenizer::FromFile(FixturePath("trained/cls_bert/tokenizer.json"));
  const std::vector<int64_t> word = bert.Encode("help", false);
  const std::vector<int64_t> before = bert.Encode("please", false);
  std::vector<int64_t> both = before;
  both.insert(both.end(), word.begin(), word.end());
  DecodeStream continued(bert, true, before);
  std::string piece;
  for (int64_t id : word) piece += continued.Push(id);
  EXPECT_EQ(bert.Decode(before) + piece + continued.Flush(), bert.Decode(both));
}

TEST(DecodeStreamTest, OutlivesItsTokenizerAndRefusesNegativeIds) {
  auto tokenizer = std::make_unique<Tokenizer>(
      Tokenizer::FromFile(FixturePath("trained/lm_llama/tokenizer.json")));
  const std::vector<int64_t> ids = tokenizer->Encode("Hello", false);
  DecodeStream stream(*tokenizer, true);
  tokenizer.reset();
  std::string text;
  for (int64_t id : ids) text += stream.Push(id);
  EXPECT_EQ(text, "Hello");
  EXPECT_THROW(stream.Push(-1), Error);
}

}  // namespace
}  // namespace octavo
