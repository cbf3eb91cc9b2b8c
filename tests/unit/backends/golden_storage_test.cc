// The same tiny Llama stored in unusual ways, on every backend: whatever the storage, the logits
// are those that transformers computed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "hf_cache_fixture.h"
#include "test_support.h"
#include "unit/backends/golden_support.h"

namespace octavo::testing {
namespace {

constexpr double kFloat32Tolerance = 1e-4;

class Storage : public ::testing::TestWithParam<std::tuple<std::string, std::string>> {};

TEST_P(Storage, Logits) {
  const auto& [name, backend] = GetParam();
  const std::string directory = FixturePath("storage/" + name);
  const Expected expected(directory);
  // The config says tied: the embedding is the head, even where an lm_head.weight lies beside it.
  const std::string logits = name == "tied_present_different" ? "logits_tied." : "logits.";
  TestModel model(directory, {.backend = backend});
  const auto prompts = expected.Prompts();
  ASSERT_EQ(prompts.size(), 2u);
  for (size_t i = 0; i < prompts.size(); ++i) {
    EXPECT_LE(
        Compare(model.Logits(prompts[i]), expected.Floats(logits + std::to_string(i))).largest,
        kFloat32Tolerance)
        << "prompt " << i;
  }
}

TEST_P(Storage, Int8AgreesWithTheReference) {
  const auto& [name, backend] = GetParam();
  const std::string directory = FixturePath("storage/" + name);
  ModelOptions options{.backend = "reference", .quantization = "int8", .quantize_lm_head = true};
  TestModel reference(directory, options);
  options.backend = backend;
  TestModel model(directory, options);
  for (const auto& prompt : Expected(directory).Prompts()) {
    EXPECT_LE(Compare(model.Logits(prompt), reference.Logits(prompt)).largest, kFloat32Tolerance);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Fixtures, Storage,
    ::testing::Combine(::testing::Values("dtype_f64", "dtype_mixed", "extra_tensors", "no_metadata",
                                         "odd_order", "odd_shapes", "outlier_row", "plain",
                                         "prefer_safetensors", "sharded", "tied_absent",
                                         "tied_present_different", "tied_present_same",
                                         "unaligned_header", "zero_row"),
                       ::testing::ValuesIn(BackendNames())),
    [](const auto& test) { return std::get<0>(test.param) + "_" + std::get<1>(test.param); });

class StorageOn : public ::testing::TestWithParam<std::string> {};

TEST_P(StorageOn, HubCache) {
  const TempDir folder;
  const std::string cache = folder / "hub";
  CopyHfCache(cache);
  const ScopedEnvironment environment("HF_HUB_CACHE", cache.c_str());
  // expected.json lies in the root of the cache, the model in a snapshot of links.
  const Expected expected(cache);
  TestModel model(ResolveModelDirectory("acme/tiny-llama"), {.backend = GetParam()});
  for (size_t i = 0; i < 2; ++i) {
    const std::string number = std::to_string(i);
    const std::vector<float> logits = model.Logits(expected.Tokens("input_ids." + number));
    EXPECT_LE(Compare(logits, expected.Floats("logits." + number)).largest, kFloat32Tolerance);
  }
}

TEST_P(StorageOn, AnUnusedHeadIsReported) {
  const std::string directory = FixturePath("storage/tied_present_different");
  const TestModel model(directory, {.backend = GetParam()});
  EXPECT_THAT(model.warnings(),
              ::testing::Contains(::testing::AllOf(::testing::HasSubstr("lm_head.weight"),
                                                   ::testing::HasSubstr("embed_tokens.weight"))));
}

TEST_P(StorageOn, ZeroRowStaysZeroInInt8) {
  const std::string directory = FixturePath("storage/zero_row");
  for (const ComputeType compute : {ComputeType::kFloat32, ComputeType::kBFloat16}) {
    TestModel model(directory, {.backend = GetParam(),
                                .compute = compute,
                                .quantization = "int8",
                                .quantize_lm_head = true});
    for (const auto& prompt : Expected(directory).Prompts()) {
      const std::vector<float> logits = model.Logits(prompt);
      for (size_t row = 0; row < prompt.size(); ++row) {
        EXPECT_EQ(logits[row * static_cast<size_t>(model.vocab()) + 9], 0.0f) << "row " << row;
      }
      for (const float logit : logits) ASSERT_TRUE(std::isfinite(logit));
    }
  }
}

// Without quantization a broken weight loads, and what it breaks is seen: it must not come out as a
// number.
TEST_P(StorageOn, NotANumberStaysVisible) {
  for (const char* name : {"nan_weight", "inf_weight"}) {
    TestModel model(FixturePath(std::string("storage/") + name), {.backend = GetParam()});
    for (const float logit : model.Logits({3, 1, 4, 1, 5})) ASSERT_TRUE(std::isnan(logit)) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, StorageOn, ::testing::ValuesIn(BackendNames()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace octavo::testing
