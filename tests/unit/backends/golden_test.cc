// Every fixture model of the decoder families on every backend, against what transformers computed.
// Tolerances are those of the fixtures' README: 1e-4 in float32; in bfloat16 twice the largest
// difference of transformers' own bfloat16 run, and half of it as root mean square.
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "test_support.h"
#include "unit/backends/golden_support.h"

namespace octavo::testing {
namespace {

constexpr double kFloat32Tolerance = 1e-4;
constexpr size_t kContinuation = 32;  // tokens of greedy.N

class Golden : public ::testing::TestWithParam<std::tuple<std::string, std::string>> {
 protected:
  std::string directory() const { return FixturePath("arch/" + std::get<0>(GetParam())); }
  std::string backend() const { return std::get<1>(GetParam()); }

  // A second batch shape of the same prompts: tokens of all of them side by side, in chunks.
  static std::vector<std::vector<float>> RunTogether(
      TestModel& model, const std::vector<std::vector<int32_t>>& prompts, size_t chunk) {
    std::vector<TestModel::Sequence> sequences;
    for (const auto& prompt : prompts) {
      sequences.push_back(model.NewSequence(static_cast<int64_t>(prompt.size())));
      sequences.back().rope_length = static_cast<int64_t>(prompt.size());
    }
    std::vector<std::vector<float>> logits(prompts.size());
    for (size_t begin = 0;; begin += chunk) {
      std::vector<TestModel::Step> steps;
      std::vector<size_t> owners;
      for (size_t i = 0; i < prompts.size(); ++i) {
        if (begin >= prompts[i].size()) continue;
        const size_t end = std::min(begin + chunk, prompts[i].size());
        steps.push_back({&sequences[i],
                         {prompts[i].begin() + static_cast<int64_t>(begin),
                          prompts[i].begin() + static_cast<int64_t>(end)}});
        owners.push_back(i);
      }
      if (steps.empty()) return logits;
      const std::vector<float> rows = model.Run(steps);
      auto row = rows.begin();
      for (size_t s = 0; s < steps.size(); ++s) {
        const auto end = row + static_cast<int64_t>(steps[s].tokens.size()) * model.vocab();
        logits[owners[s]].insert(logits[owners[s]].end(), row, end);
        row = end;
      }
    }
  }
};

TEST_P(Golden, LogitsInFloat32) {
  const Expected expected(directory());
  TestModel model(directory(), {.backend = backend()});
  const auto prompts = expected.Prompts();
  ASSERT_EQ(prompts.size(), 3u);
  for (size_t i = 0; i < prompts.size(); ++i) {
    const std::vector<float> logits = expected.Floats("logits." + std::to_string(i));
    for (const int64_t chunk : {int64_t{1} << 20, int64_t{7}, int64_t{1}}) {
      EXPECT_LE(Compare(model.Logits(prompts[i], chunk), logits).largest, kFloat32Tolerance)
          << "prompt " << i << " in chunks of " << chunk;
    }
  }
}

TEST_P(Golden, LogitsOfABatchOfSequences) {
  const Expected expected(directory());
  TestModel model(directory(), {.backend = backend()});
  const auto prompts = expected.Prompts();
  for (const size_t chunk : {size_t{64}, size_t{6}}) {
    model.ReleaseAll();
    const auto logits = RunTogether(model, prompts, chunk);
    for (size_t i = 0; i < prompts.size(); ++i) {
      EXPECT_LE(Compare(logits[i], expected.Floats("logits." + std::to_string(i))).largest,
                kFloat32Tolerance)
          << "prompt " << i << " in chunks of " << chunk;
    }
  }
}

TEST_P(Golden, HiddenStates) {
  const Expected expected(directory());
  TestModel model(directory(), {.backend = backend()});
  const auto states = model.HiddenStates(expected.Tokens("input_ids.0"));
  ASSERT_FALSE(expected.Has("hidden." + std::to_string(states.size())));
  for (size_t layer = 0; layer < states.size(); ++layer) {
    const std::string name = "hidden." + std::to_string(layer);
    ASSERT_TRUE(expected.Has(name));
    EXPECT_LE(Compare(states[layer], expected.Floats(name)).largest, kFloat32Tolerance) << name;
  }
}

// With a KV cache, token by token. Where the cache changes the result in transformers (keys keep
// the frequencies that they were cached with), greedy_cached.N has that variant.
TEST_P(Golden, GreedyWithKvCache) {
  const Expected expected(directory());
  TestModel model(directory(), {.backend = backend()});
  const auto prompts = expected.Prompts();
  std::vector<TestModel::Sequence> sequences;
  std::vector<std::vector<int32_t>> found(prompts.size());
  for (size_t i = 0; i < prompts.size(); ++i) {
    sequences.push_back(model.NewSequence(static_cast<int64_t>(prompts[i].size() + kContinuation)));
    const std::vector<float> logits = model.Run({{&sequences[i], prompts[i]}});
    found[i].push_back(LastArgmax(logits, model.vocab()));
  }
  while (found[0].size() < kContinuation) {  // all sequences step together
    std::vector<TestModel::Step> steps;
    for (size_t i = 0; i < prompts.size(); ++i) steps.push_back({&sequences[i], {found[i].back()}});
    const std::vector<float> logits = model.Run(steps);
    for (size_t i = 0; i < prompts.size(); ++i) {
      const auto row = logits.begin() + static_cast<int64_t>(i) * model.vocab();
      found[i].push_back(LastArgmax({row, row + model.vocab()}, model.vocab()));
    }
  }
  for (size_t i = 0; i < prompts.size(); ++i) {
    const std::string cached = "greedy_cached." + std::to_string(i);
    const std::string plain = "greedy." + std::to_string(i);
    EXPECT_EQ(found[i], expected.Tokens(expected.Has(cached) ? cached : plain)) << "prompt " << i;
  }
}

// Without: the whole sequence anew at each step.
TEST_P(Golden, GreedyRecomputed) {
  const Expected expected(directory());
  TestModel model(directory(), {.backend = backend()});
  const auto prompts = expected.Prompts();
  for (size_t i = 0; i < prompts.size(); ++i) {
    std::vector<int32_t> tokens = prompts[i];
    while (tokens.size() < prompts[i].size() + kContinuation) {
      tokens.push_back(LastArgmax(model.Logits(tokens), model.vocab()));
    }
    const std::vector<int32_t> found(tokens.begin() + static_cast<int64_t>(prompts[i].size()),
                                     tokens.end());
    EXPECT_EQ(found, expected.Tokens("greedy." + std::to_string(i))) << "prompt " << i;
  }
}

TEST_P(Golden, LogitsInBFloat16) {
  const Expected expected(directory());
  const double bf16 = expected.facts().at("bf16_compute_max_abs");
  TestModel model(directory(), {.backend = backend(), .compute = ComputeType::kBFloat16});
  const auto prompts = expected.Prompts();
  for (size_t i = 0; i < prompts.size(); ++i) {
    const std::vector<float> logits = expected.Floats("logits." + std::to_string(i));
    for (const int64_t chunk : {int64_t{1} << 20, int64_t{1}}) {
      const Difference difference = Compare(model.Logits(prompts[i], chunk), logits);
      EXPECT_LE(difference.largest, 2 * bf16) << "prompt " << i << " in chunks of " << chunk;
      EXPECT_LE(difference.root_mean_square, bf16 / 2) << "prompt " << i << " chunk " << chunk;
    }
  }
}

// Weights in int8: all backends compute from the same codes and scales.
TEST_P(Golden, Int8AgreesWithTheReference) {
  const Expected expected(directory());
  const double bf16 = expected.facts().at("bf16_compute_max_abs");
  const ModelOptions int8{.quantization = "int8", .quantize_lm_head = true};
  ModelOptions options = int8;
  options.backend = "reference";
  TestModel reference(directory(), options);
  options.backend = backend();
  TestModel exact(directory(), options);
  options.compute = ComputeType::kBFloat16;
  TestModel fast(directory(), options);
  for (const auto& prompt : expected.Prompts()) {
    const std::vector<float> logits = reference.Logits(prompt);
    for (const int64_t chunk : {int64_t{1} << 20, int64_t{1}}) {
      EXPECT_LE(Compare(exact.Logits(prompt, chunk), logits).largest, kFloat32Tolerance);
      const Difference difference = Compare(fast.Logits(prompt, chunk), logits);
      EXPECT_LE(difference.largest, 2 * bf16);
      EXPECT_LE(difference.root_mean_square, bf16 / 2);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Fixtures, Golden,
    ::testing::Combine(::testing::Values("llama_bias", "llama_dynamic", "llama_f32", "llama_gqa",
                                         "llama_linear", "llama_tied", "llama_yarn", "mistral",
                                         "mistral_f16", "qwen2", "qwen2_sliding", "qwen3"),
                       ::testing::ValuesIn(BackendNames())),
    [](const auto& test) { return std::get<0>(test.param) + "_" + std::get<1>(test.param); });

}  // namespace
}  // namespace octavo::testing
