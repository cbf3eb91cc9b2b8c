#include "text/tokenizer.h"

#include <gtest/gtest.h>
#include <octavo/error.h>

#include <atomic>
#include <cstring>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "test_support.h"

namespace octavo {
namespace {

using nlohmann::json;
using testing::FixturePath;

Tokenizer Load(const std::string& name) {
  return Tokenizer::FromFile(FixturePath("trained/" + name + "/tokenizer.json"));
}

json Expected(const std::string& name) {
  return json::parse(testing::ReadWholeFile(FixturePath("trained/" + name + "/expected.json")));
}

ErrorCode CodeOf(const auto& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.code();
  }
  ADD_FAILURE() << "no error";
  return ErrorCode::kInternal;
}

TEST(TokenizerTest, EqualsTransformersOnItsCases) {
  const Tokenizer tokenizer = Load("lm_llama");
  const json cases = Expected("lm_llama")["tokenizer_cases"];
  ASSERT_GT(cases.size(), 10u);
  for (const json& item : cases) {
    const std::string text = item["text"];
    EXPECT_EQ(tokenizer.Encode(text), item["ids"].get<std::vector<int64_t>>()) << text;
    const std::vector<int64_t> plain = item["ids_no_special"];
    EXPECT_EQ(tokenizer.Encode(text, false), plain) << text;
    EXPECT_EQ(tokenizer.Decode(plain, false), item["decoded"].get<std::string>());
  }
}

TEST(TokenizerTest, EncodesTheEvaluationTexts) {
  const Tokenizer tokenizer = Load("lm_llama");
  const json expected = Expected("lm_llama");
  for (const char* name : {"eval_kjv.txt", "eval_python.txt"}) {
    const std::string text =
        testing::ReadWholeFile(FixturePath(std::string("trained/lm_llama/") + name));
    const std::vector<int64_t> ids = tokenizer.Encode(text, false);
    EXPECT_EQ(ids.size(), expected[name]["tokens"].get<size_t>());
    EXPECT_EQ(tokenizer.Decode(ids), text);
  }
}

// The ids of all 500 texts, concatenated, lie in the fixture's safetensors file.
void ExpectClassifierIds(const std::string& name) {
  const std::string file =
      testing::ReadWholeFile(FixturePath("trained/" + name + "/expected.safetensors"));
  uint64_t header_size = 0;
  std::memcpy(&header_size, file.data(), sizeof header_size);
  const json header = json::parse(file.substr(8, header_size));
  const uint64_t begin = header["ids"]["data_offsets"][0];
  const uint64_t end = header["ids"]["data_offsets"][1];
  std::vector<int64_t> expected((end - begin) / sizeof(int64_t));
  std::memcpy(expected.data(), file.data() + 8 + header_size + begin, end - begin);

  const Tokenizer tokenizer = Load(name);
  std::istringstream lines(testing::ReadWholeFile(FixturePath("trained/" + name + "/test.jsonl")));
  std::vector<int64_t> ids;
  for (std::string line; std::getline(lines, line);) {
    const std::vector<int64_t> encoded =
        tokenizer.Encode(json::parse(line)["text"].get<std::string>());
    ids.insert(ids.end(), encoded.begin(), encoded.end());
  }
  EXPECT_EQ(ids, expected);
}

TEST(TokenizerTest, EncodesClassifierTextsWithWordPiece) { ExpectClassifierIds("cls_bert"); }
TEST(TokenizerTest, EncodesClassifierTextsWithByteLevelBpe) { ExpectClassifierIds("cls_llama"); }

TEST(TokenizerTest, KnowsItsVocabulary) {
  const Tokenizer tokenizer = Load("lm_llama");
  EXPECT_EQ(tokenizer.vocab_size(), 2048);
  EXPECT_EQ(tokenizer.id_limit(), 2048);
  EXPECT_EQ(tokenizer.TokenToId("<|im_end|>"), 4);
  EXPECT_EQ(tokenizer.TokenToId("no such token"), std::nullopt);
  EXPECT_EQ(tokenizer.IdToToken(0), "<|bos|>");
  EXPECT_EQ(tokenizer.IdToToken(2048), std::nullopt);
  EXPECT_EQ(tokenizer.IdToToken(-1), std::nullopt);
  ASSERT_EQ(tokenizer.special_tokens().size(), 5u);
  EXPECT_EQ(tokenizer.special_tokens()[3].id, 3);
  EXPECT_EQ(tokenizer.special_tokens()[3].text, "<|im_start|>");
  EXPECT_EQ(tokenizer.Decode(std::vector<int64_t>{799, 4, 5000, 282, 83}, false),
            "He<|im_end|>llo");
}

TEST(TokenizerTest, BadInputIsAnError) {
  testing::TempDir folder;
  EXPECT_EQ(CodeOf([&] { Tokenizer::FromFile(folder / "tokenizer.json"); }), ErrorCode::kNotFound);
  for (const char* text : {"", "{", "{}", "[]", "\xff", R"({"model": {"type": "Frobnicate"}})"}) {
    testing::WriteFile(folder / "tokenizer.json", text);
    try {
      Tokenizer::FromFile(folder / "tokenizer.json");
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kDataLoss);
      EXPECT_NE(std::string(error.what()).find("tokenizer.json"), std::string::npos);
    }
  }
  const std::string deep = std::string(1'000'000, '[');
  EXPECT_EQ(CodeOf([&] { Tokenizer::FromJson(deep, "deep"); }), ErrorCode::kDataLoss);

  const Tokenizer tokenizer = Load("lm_llama");
  EXPECT_EQ(CodeOf([&] { tokenizer.Encode("a\xff"); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(CodeOf([&] { tokenizer.Decode(std::vector<int64_t>{-1}); }),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(CodeOf([&] { tokenizer.Encode(std::string((64 << 20) + 1, 'a')); }),
            ErrorCode::kResourceExhausted);
}

TEST(TokenizerTest, IsUsedByManyThreadsAndMoves) {
  Tokenizer first = Load("lm_llama");
  const Tokenizer tokenizer = std::move(first);
  const std::vector<int64_t> expected = tokenizer.Encode("In the beginning God created");
  std::vector<std::thread> threads;
  std::atomic<int> equal = 0;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int n = 0; n < 200; ++n) {
        equal += tokenizer.Encode("In the beginning God created") == expected;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(equal, 800);
}

}  // namespace
}  // namespace octavo
