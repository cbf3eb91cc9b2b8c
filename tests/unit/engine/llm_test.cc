// The whole way, on a small Llama that was trained on real text (fixtures/trained/lm_llama).
#include <gtest/gtest.h>
#include <octavo/llm.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "test_support.h"

namespace octavo {
namespace {

std::string ModelPath() { return testing::FixturePath("trained/lm_llama"); }

nlohmann::json Expected() {
  std::ifstream file(ModelPath() + "/expected.json");
  return nlohmann::json::parse(file);
}

LLM MakeLlm(const std::string& quantization = "none", int64_t max_model_len = 0,
            int64_t max_num_batched_tokens = 512, int64_t max_num_seqs = 4) {
  return LLM({.model = ModelPath(),
              .quantization = quantization,
              .dtype = "float32",
              .threads = 2,
              .max_model_len = max_model_len,
              .max_num_seqs = max_num_seqs,
              .max_num_batched_tokens = max_num_batched_tokens});
}

std::string ErrorOf(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return std::string(ErrorCodeName(error.code())) + ": " + error.what();
  }
  return "no error";
}

TEST(LlmTest, GreedyContinuationsAreThoseOfTransformers) {
  LLM llm = MakeLlm();
  const nlohmann::json all = Expected();
  for (const auto& expected : all["greedy_f32"]) {
    const auto ids = expected["ids"].get<std::vector<int64_t>>();
    const Completion completion = llm.Generate(expected["prompt"].get<std::string>(),
                                               {.max_tokens = static_cast<int64_t>(ids.size()),
                                                .temperature = 0,
                                                .ignore_eos = true,
                                                .skip_special_tokens = false});
    EXPECT_EQ(completion.token_ids, ids) << expected["prompt"];
    EXPECT_EQ(completion.finish_reason, FinishReason::kLength);
  }
}

TEST(LlmTest, ChatLaysMessagesOutAsTransformersDoes) {
  LLM llm = MakeLlm();
  ASSERT_TRUE(llm.has_chat_template());
  const nlohmann::json all = Expected();
  for (const auto& expected : all["chat"]) {
    std::vector<ChatMessage> messages;
    for (const auto& message : expected["messages"]) {
      messages.push_back({message["role"], message["content"]});
    }
    const Completion completion = llm.Chat(messages, {.max_tokens = 1, .temperature = 0});
    EXPECT_EQ(completion.prompt_token_ids, expected["ids"].get<std::vector<int64_t>>());
  }
}

TEST(LlmTest, ABatchGivesWhatEachPromptGivesAlone) {
  const std::vector<std::string> prompts = {"In the beginning", "The function returns",
                                            "And he said",      "A list is",
                                            "Moses went up",    "class object"};
  SamplingParams params{
      .max_tokens = 24, .temperature = 0.8f, .top_p = 0.95f, .seed = 5, .ignore_eos = true};
  std::vector<Completion> alone;
  LLM single = MakeLlm("int8");
  for (const std::string& prompt : prompts) alone.push_back(single.Generate(prompt, params));
  // A small budget, so that prompts are cut into chunks and wait for each other.
  LLM batched = MakeLlm("int8", 0, /*max_num_batched_tokens=*/4, /*max_num_seqs=*/3);
  const std::vector<Completion> together = batched.Generate(prompts, params);
  ASSERT_EQ(together.size(), alone.size());
  for (size_t i = 0; i < alone.size(); ++i) {
    EXPECT_EQ(together[i].token_ids, alone[i].token_ids) << prompts[i];
    EXPECT_EQ(together[i].text, alone[i].text);
  }
}

TEST(LlmTest, PiecesOfAStreamMakeUpTheText) {
  LLM llm = MakeLlm();
  std::string streamed;
  const Completion completion = llm.Generate(
      "In the beginning", {.max_tokens = 40, .temperature = 0}, [&](std::string_view piece) {
        streamed += piece;
        return true;
      });
  EXPECT_EQ(streamed, completion.text);
  EXPECT_FALSE(streamed.empty());
}

TEST(LlmTest, TheCallbackCanStopTheGeneration) {
  LLM llm = MakeLlm();
  int pieces = 0;
  const Completion completion =
      llm.Generate("In the beginning", {.max_tokens = 40, .temperature = 0},
                   [&](std::string_view) { return ++pieces < 3; });
  EXPECT_EQ(pieces, 3);
  EXPECT_LT(completion.token_ids.size(), 40u);
}

TEST(LlmTest, StopStringsEndTheTextBeforeThem) {
  LLM llm = MakeLlm();
  const SamplingParams greedy{.max_tokens = 40, .temperature = 0};
  const std::string whole = llm.Generate("In the beginning", greedy).text;
  ASSERT_GT(whole.size(), 20u);
  SamplingParams params = greedy;
  params.stop = {"\x01 never", whole.substr(9, 7)};  // crosses token boundaries
  const Completion stopped = llm.Generate("In the beginning", params);
  EXPECT_EQ(stopped.text, whole.substr(0, whole.find(params.stop[1])));
  EXPECT_EQ(stopped.finish_reason, FinishReason::kStop);
  EXPECT_EQ(stopped.stop_reason, params.stop[1]);
  params.include_stop_str_in_output = true;
  EXPECT_EQ(llm.Generate("In the beginning", params).text,
            whole.substr(0, whole.find(params.stop[1]) + params.stop[1].size()));
}

TEST(LlmTest, StopTokensEndTheTextAndMaxTokensLimitsIt) {
  LLM llm = MakeLlm();
  const Completion ten = llm.Generate("In the beginning", {.max_tokens = 10, .temperature = 0});
  ASSERT_EQ(ten.token_ids.size(), 10u);
  SamplingParams params{.max_tokens = 10, .temperature = 0, .stop_token_ids = {ten.token_ids[4]}};
  const Completion stopped = llm.Generate("In the beginning", params);
  const auto first = std::find(ten.token_ids.begin(), ten.token_ids.end(), ten.token_ids[4]);
  EXPECT_EQ(stopped.token_ids, std::vector<int64_t>(ten.token_ids.begin(), first + 1));
  EXPECT_EQ(stopped.finish_reason, FinishReason::kStop);
}

TEST(LlmTest, LogprobsComeWithEachToken) {
  LLM llm = MakeLlm();
  const Completion completion =
      llm.Generate("In the beginning", {.max_tokens = 3, .temperature = 0, .logprobs = 2});
  ASSERT_EQ(completion.logprobs.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    ASSERT_EQ(completion.logprobs[i].size(), 3u);
    EXPECT_EQ(completion.logprobs[i][0].token_id, completion.token_ids[i]);
    EXPECT_EQ(completion.logprobs[i][1].token_id, completion.token_ids[i]);  // greedy
    EXPECT_LE(completion.logprobs[i][2].logprob, completion.logprobs[i][1].logprob);
    EXPECT_LT(completion.logprobs[i][0].logprob, 0);
  }
}

TEST(LlmTest, TheContextLimitsPromptAndOutput) {
  LLM llm = MakeLlm("none", /*max_model_len=*/16);
  EXPECT_EQ(llm.max_model_len(), 16);
  const Completion completion =
      llm.Generate("And", {.max_tokens = 1000, .temperature = 0, .ignore_eos = true});
  EXPECT_EQ(completion.prompt_token_ids.size() + completion.token_ids.size(), 16u);
  EXPECT_EQ(completion.finish_reason, FinishReason::kLength);
  std::string longer;
  for (int i = 0; i < 20; ++i) longer += "And he said unto them. ";
  const std::string error = ErrorOf([&] { llm.Generate(longer); });
  EXPECT_NE(error.find("context of 16 tokens"), std::string::npos) << error;
  EXPECT_EQ(llm.Generate("And", {.max_tokens = 1}).token_ids.size(), 1u);  // usable afterwards
}

TEST(LlmTest, BadRequestsAndOptionsAreNamed) {
  LLM llm = MakeLlm();
  EXPECT_NE(ErrorOf([&] { llm.Generate("a", {.max_tokens = 0}); }).find("max_tokens is 0"),
            std::string::npos);
  EXPECT_NE(ErrorOf([&] { llm.Generate("\xff\xfe"); }).find("invalid_argument"), std::string::npos);
  EXPECT_NE(ErrorOf([] { MakeLlm("int9"); }).find("int8"), std::string::npos);
  EXPECT_NE(ErrorOf([] { MakeLlm("none", 1 << 30); }).find("max_model_len"), std::string::npos);
  EXPECT_NE(ErrorOf([] { LLM({.model = "/nowhere/at/all"}); }).find("not_found"),
            std::string::npos);
  EXPECT_NE(ErrorOf([] { LLM({.model = ModelPath(), .backend = "abacus"}); }).find("reference"),
            std::string::npos);
  EXPECT_NE(ErrorOf([] { LLM({.model = ModelPath(), .dtype = "int3"}); }).find("bfloat16"),
            std::string::npos);
}

TEST(LlmTest, AModelWithoutTokenizerSaysSo) {
  const std::string error = ErrorOf([] { LLM({.model = testing::FixturePath("storage/plain")}); });
  EXPECT_NE(error.find("tokenizer.json"), std::string::npos) << error;
}

}  // namespace
}  // namespace octavo
