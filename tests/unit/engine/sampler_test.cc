#include "engine/sampler.h"

#include <gtest/gtest.h>
#include <octavo/error.h>

#include <cmath>
#include <limits>
#include <map>
#include <string>

namespace octavo {
namespace {

const std::vector<float> kLogits = {0.0f, 2.0f, 1.0f, -1.0f, 2.5f};

std::map<int32_t, double> Frequencies(const SamplingParams& params,
                                      const std::vector<float>& logits, int draws) {
  std::map<int32_t, double> frequencies;
  SamplingParams seeded = params;
  for (int i = 0; i < draws; ++i) {
    seeded.seed = static_cast<uint64_t>(i);
    Sampler sampler(seeded, {}, static_cast<int64_t>(logits.size()));
    frequencies[sampler.Sample(logits).id] += 1.0 / draws;
  }
  return frequencies;
}

TEST(SamplerTest, TemperatureZeroIsGreedyAndTakesTheFirstOfEquals) {
  SamplingParams params{.temperature = 0};
  EXPECT_EQ(Sampler(params, {}, 5).Sample(kLogits).id, 4);
  EXPECT_EQ(Sampler(params, {}, 5).Sample(std::vector<float>{1, 3, 3, 0, 3}).id, 1);
}

TEST(SamplerTest, PaddingRowsOfTheHeadAreNeverChosen) {
  EXPECT_EQ(Sampler({.temperature = 0}, {}, 4).Sample(kLogits).id, 1);
  EXPECT_EQ(Frequencies({.temperature = 100}, kLogits, 200).count(4), 1u);
  SamplingParams params{.temperature = 100, .seed = 1};
  Sampler sampler(params, {}, 4);
  for (int i = 0; i < 200; ++i) EXPECT_LT(sampler.Sample(kLogits).id, 4);
}

TEST(SamplerTest, DrawsWithTheProbabilitiesOfTheSoftmax) {
  const auto frequencies = Frequencies({.temperature = 0.7f}, kLogits, 20000);
  double sum = 0;
  for (const float logit : kLogits) sum += std::exp(logit / 0.7);
  for (size_t i = 0; i < kLogits.size(); ++i) {
    // Three standard deviations of 20000 draws are below 0.011.
    EXPECT_NEAR(
        frequencies.count(static_cast<int32_t>(i)) ? frequencies.at(static_cast<int32_t>(i)) : 0,
        std::exp(kLogits[i] / 0.7) / sum, 0.011);
  }
}

TEST(SamplerTest, TopKTopPAndMinPLimitTheChoice) {
  EXPECT_EQ(Frequencies({.temperature = 5, .top_k = 2}, kLogits, 500).size(), 2u);
  EXPECT_EQ(Frequencies({.temperature = 5, .top_k = 1}, kLogits, 100).count(4), 1u);
  // Probabilities at temperature 1: 4: .50, 1: .305, 2: .112, 0: .041, 3: .015; top-p 0.55 needs
  // two.
  const auto nucleus = Frequencies({.top_p = 0.55f}, kLogits, 500);
  EXPECT_EQ(nucleus.size(), 2u);
  EXPECT_TRUE(nucleus.count(4) && nucleus.count(1));
  EXPECT_EQ(Frequencies({.top_p = 0.3f}, kLogits, 200).size(), 1u);
  // min-p 0.2: tokens of at least a fifth of the most likely one's probability: 4, 1, 2.
  EXPECT_EQ(Frequencies({.min_p = 0.2f}, kLogits, 2000).size(), 3u);
}

TEST(SamplerTest, TopPOverAFlatVocabularyLooksPastTheFirstThousand) {
  const std::vector<float> flat(5000, 0.0f);
  std::map<int32_t, double> seen = Frequencies({.top_p = 0.9f}, flat, 3000);
  int64_t beyond = 0;
  for (const auto& [id, share] : seen) {
    EXPECT_LT(id, 4500 + 1);  // nine tenths of equal tokens, ties by id
    beyond += id >= 1024;
  }
  EXPECT_GT(beyond, 1000);
}

TEST(SamplerTest, PenaltiesFollowTheirDefinitions) {
  // Repetition: positive logits are divided, negative multiplied; over prompt and output.
  SamplingParams repetition{.temperature = 0, .repetition_penalty = 2.0f};
  const std::vector<int32_t> prompt = {4};
  Sampler a(repetition, prompt, 5);
  EXPECT_EQ(a.Sample(kLogits).id, 1);  // 4: 2.5 -> 1.25
  EXPECT_EQ(a.Sample(kLogits).id, 4);  // 1: 2 -> 1; 4 still 1.25
  // Presence: once per token of the output; frequency: per occurrence.
  Sampler b({.temperature = 0, .presence_penalty = 1.0f}, prompt, 5);
  EXPECT_EQ(b.Sample(kLogits).id, 4);
  EXPECT_EQ(b.Sample(kLogits).id, 1);  // 4: 1.5
  EXPECT_EQ(b.Sample(kLogits).id, 4);  // 4: 1.5, 1: 1
  EXPECT_EQ(b.Sample(kLogits).id, 4);
  Sampler c({.temperature = 0, .frequency_penalty = 1.0f}, prompt, 5);
  EXPECT_EQ(c.Sample(kLogits).id, 4);
  EXPECT_EQ(c.Sample(kLogits).id, 1);
  EXPECT_EQ(c.Sample(kLogits).id, 4);  // 1.5 against 1 (1), 1 (2)
  EXPECT_EQ(c.Sample(kLogits).id, 1);  // 4: 0.5, 1: 1, 2: 1
}

TEST(SamplerTest, ExtremePenaltiesStayFinite) {
  const std::vector<int32_t> prompt = {0, 1, 2, 3, 4};
  for (const float penalty : {1e-38f, 1e38f}) {
    for (const float temperature : {0.0f, 1.0f}) {
      Sampler sampler({.temperature = temperature, .repetition_penalty = penalty, .seed = 1},
                      prompt, 5);
      // 1e-38 makes the positive logits huge: only they can be chosen.
      if (penalty < 1) EXPECT_GT(kLogits[static_cast<size_t>(sampler.Sample(kLogits).id)], 0);
      if (penalty > 1) EXPECT_NE(sampler.Sample(kLogits).id, 3);  // -1 becomes hugely negative
    }
  }
}

TEST(SamplerTest, SameSeedSameTokens) {
  const auto draw = [&](uint64_t seed) {
    Sampler sampler({.seed = seed}, {}, 5);
    std::vector<int32_t> ids;
    for (int i = 0; i < 50; ++i) ids.push_back(sampler.Sample(kLogits).id);
    return ids;
  };
  EXPECT_EQ(draw(7), draw(7));
  EXPECT_NE(draw(7), draw(8));
}

TEST(SamplerTest, LogprobsAreOfTheUntouchedDistribution) {
  SamplingParams params{.temperature = 0, .repetition_penalty = 10.0f, .logprobs = 2};
  const std::vector<int32_t> prompt = {4};
  const SampledToken token = Sampler(params, prompt, 5).Sample(kLogits);
  double sum = 0;
  for (const float logit : kLogits) sum += std::exp(logit);
  ASSERT_EQ(token.logprobs.size(), 3u);
  EXPECT_EQ(token.logprobs[0].first, 1);
  EXPECT_NEAR(token.logprobs[0].second, 2.0 - std::log(sum), 1e-6);
  EXPECT_EQ(token.logprobs[1].first, 4);
  EXPECT_NEAR(token.logprobs[1].second, 2.5 - std::log(sum), 1e-6);
  EXPECT_EQ(token.logprobs[2].first, 1);
}

TEST(SamplerTest, NonFiniteLogitsAreAnError) {
  for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    std::vector<float> logits = kLogits;
    logits[2] = bad;
    EXPECT_THROW(Sampler({.temperature = 0}, {}, 5).Sample(logits), Error);
  }
}

TEST(SamplerTest, ParametersOutOfRangeAreNamed) {
  const auto message = [](const SamplingParams& params) -> std::string {
    try {
      ValidateSamplingParams(params);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message({}), "");
  EXPECT_EQ(message({.max_tokens = 0}), "max_tokens is 0, expected at least 1");
  EXPECT_NE(message({.temperature = -1}).find("temperature"), std::string::npos);
  EXPECT_NE(message({.top_k = -2}).find("top_k"), std::string::npos);
  EXPECT_NE(message({.top_p = 0}).find("top_p"), std::string::npos);
  EXPECT_NE(message({.min_p = 1.5f}).find("min_p"), std::string::npos);
  EXPECT_NE(message({.repetition_penalty = 0}).find("repetition_penalty"), std::string::npos);
  EXPECT_NE(message({.presence_penalty = std::nanf("")}).find("presence_penalty"),
            std::string::npos);
  EXPECT_NE(message({.frequency_penalty = 3}).find("frequency_penalty"), std::string::npos);
  EXPECT_NE(message({.stop = {"a", ""}}).find("stop"), std::string::npos);
  EXPECT_NE(message({.logprobs = 21}).find("logprobs"), std::string::npos);
}

}  // namespace
}  // namespace octavo
