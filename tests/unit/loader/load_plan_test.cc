#include "loader/load_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <octavo/error.h>

#include <filesystem>
#include <string>
#include <vector>

#include "loader_test_support.h"

namespace octavo {
namespace {

using ::octavo::testing::FixturePath;
using ::octavo::testing::PlanFixture;
using ::octavo::testing::PlannedCheckpoint;
using ::octavo::testing::TempDir;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr char kQ[] = "model.layers.0.self_attn.q_proj.weight";
constexpr char kEmbedding[] = "model.embed_tokens.weight";

template <typename Function>
std::string ErrorOf(ErrorCode code, Function&& function) {
  try {
    function();
  } catch (const Error& error) {
    EXPECT_EQ(ErrorCodeName(error.code()), std::string(ErrorCodeName(code)));
    return error.what();
  }
  return "no error";
}

std::string PlanError(ErrorCode code, const std::string& fixture, const LoadOptions& options = {}) {
  return ErrorOf(code, [&] { PlanFixture(fixture, options); });
}

LoadOptions Int8() { return {.quantization = "int8"}; }

TEST(LoadPlan, LinearsAreQuantizedAndTheRestStays) {
  const PlannedCheckpoint planned = PlanFixture("storage/plain", Int8());
  ASSERT_EQ(planned.plan.weights.size(), planned.graph.weights().size());
  EXPECT_EQ(planned.plan.scheme, "int8");
  EXPECT_THAT(planned.plan.warnings, IsEmpty());
  uint64_t read = 0, kept = 0;
  for (const PlannedWeight& weight : planned.plan.weights) {
    const TensorEntry& entry = *weight.source.entry;
    const WeightDecl& decl = planned.graph.weight(weight.id);
    EXPECT_EQ(decl.name, entry.name);
    const bool linear = entry.name.ends_with("_proj.weight");
    EXPECT_EQ(weight.recipe.keep, !linear) << entry.name;
    EXPECT_EQ(weight.format, linear ? WeightFormat::S8Channel() : WeightFormat::Plain(entry.dtype));
    EXPECT_EQ(weight.bytes_read, entry.bytes);
    const uint64_t expected =
        linear ? static_cast<uint64_t>(entry.shape[0] * (entry.shape[1] + 4)) : entry.bytes;
    EXPECT_EQ(weight.bytes_kept, expected) << entry.name;
    read += entry.bytes;
    kept += expected;
  }
  EXPECT_EQ(planned.plan.bytes_read, read);
  EXPECT_EQ(planned.plan.bytes_kept, kept);
  EXPECT_EQ(planned.weight(kQ).reason, "int8");
  EXPECT_EQ(planned.weight(kEmbedding).reason, "embedding");
  EXPECT_EQ(planned.weight("lm_head.weight").reason, "head");
  EXPECT_EQ(planned.weight("model.norm.weight").reason, "norm");
}

TEST(LoadPlan, NoneKeepsEverythingAsStored) {
  const PlannedCheckpoint planned = PlanFixture("storage/dtype_mixed");
  EXPECT_EQ(planned.plan.scheme, "none");
  EXPECT_EQ(planned.plan.bytes_kept, planned.plan.bytes_read);
  for (const PlannedWeight& weight : planned.plan.weights) {
    EXPECT_EQ(weight.format, WeightFormat::Plain(weight.source.entry->dtype));
  }
  EXPECT_EQ(planned.weight(kQ).reason, "not quantized");
  EXPECT_EQ(planned.weight("model.layers.0.mlp.up_proj.weight").format.element, DType::kF16);
  EXPECT_EQ(planned.weight("model.norm.weight").format.element, DType::kF32);
}

TEST(LoadPlan, Float64BecomesFloat32) {
  const PlannedCheckpoint planned = PlanFixture("storage/dtype_f64");
  EXPECT_EQ(planned.weight(kQ).format, WeightFormat::Plain(DType::kF32));
  EXPECT_EQ(planned.plan.bytes_kept * 2, planned.plan.bytes_read);
}

TEST(LoadPlan, AHeadOfItsOwnIsQuantizedOnRequest) {
  LoadOptions options = Int8();
  options.quantize_lm_head = true;
  const PlannedCheckpoint planned = PlanFixture("storage/plain", options);
  EXPECT_EQ(planned.weight("lm_head.weight").format, WeightFormat::S8Channel());
  EXPECT_EQ(planned.weight("lm_head.weight").reason, "int8");
  EXPECT_EQ(planned.weight(kEmbedding).format, WeightFormat::Plain(DType::kBf16));
}

TEST(LoadPlan, ATiedHeadAndEmbeddingAreOneWeight) {
  LoadOptions options = Int8();
  EXPECT_EQ(PlanFixture("storage/tied_absent", options).weight(kEmbedding).format,
            WeightFormat::Plain(DType::kBf16));
  EXPECT_EQ(PlanFixture("storage/tied_absent", options).weight(kEmbedding).reason,
            "embedding, tied head");
  options.quantize_lm_head = true;
  EXPECT_EQ(PlanFixture("storage/tied_absent", options).weight(kEmbedding).format,
            WeightFormat::S8Channel());
}

TEST(LoadPlan, SkippedModulesStay) {
  LoadOptions options = Int8();
  options.skip_modules = {"model.layers.0.self_attn.q_proj", "re:.*layers\\.1\\..*down"};
  const PlannedCheckpoint planned = PlanFixture("storage/plain", options);
  EXPECT_TRUE(planned.weight(kQ).recipe.keep);
  EXPECT_EQ(planned.weight(kQ).reason, "--skip-modules model.layers.0.self_attn.q_proj");
  EXPECT_TRUE(planned.weight("model.layers.1.mlp.down_proj.weight").recipe.keep);
  EXPECT_EQ(planned.weight("model.layers.1.mlp.down_proj.weight").reason,
            "--skip-modules re:.*layers\\.1\\..*down");
  EXPECT_FALSE(planned.weight("model.layers.0.mlp.down_proj.weight").recipe.keep);
  EXPECT_FALSE(planned.weight("model.layers.1.self_attn.q_proj.weight").recipe.keep);
}

TEST(LoadPlan, ASkippedTiedHeadStaysThoughHeadsAreQuantized) {
  LoadOptions options = Int8();
  options.quantize_lm_head = true;
  options.skip_modules = {"model.embed_tokens"};
  EXPECT_TRUE(PlanFixture("storage/tied_absent", options).weight(kEmbedding).recipe.keep);
}

TEST(LoadPlan, APatternThatMatchesNothingIsAnError) {
  for (const char* scheme : {"int8", "none"}) {
    LoadOptions options{.quantization = scheme};
    options.skip_modules = {kQ, "down_proj", "re:nothing"};
    EXPECT_THAT(PlanError(ErrorCode::kInvalidArgument, "storage/plain", options),
                AllOf(HasSubstr("--skip-modules \"down_proj, re:nothing\" matches none"),
                      HasSubstr("\"re:.*down_proj\""), Not(HasSubstr("q_proj"))));
  }
  LoadOptions options = Int8();
  options.skip_modules = {"re:(("};
  EXPECT_THAT(PlanError(ErrorCode::kInvalidArgument, "storage/plain", options), HasSubstr("re:(("));
}

TEST(LoadPlan, BadOptionsAreErrors) {
  EXPECT_THAT(PlanError(ErrorCode::kInvalidArgument, "storage/plain", {.quantization = "int9"}),
              AllOf(HasSubstr("int9"), HasSubstr("tpu_int8")));
  EXPECT_THAT(PlanError(ErrorCode::kInvalidArgument, "storage/plain", {.quantize_lm_head = true}),
              HasSubstr("--quantize-lm-head needs a quantization scheme"));
}

TEST(LoadPlan, MissingTensorsAreNamedWithTheFilesSearched) {
  EXPECT_THAT(PlanError(ErrorCode::kNotFound, "storage/missing_tensor"),
              AllOf(HasSubstr("storage/missing_tensor: 1 of the model's tensors not found in "
                              "model.safetensors: model.layers.1.mlp.down_proj.weight"),
                    Not(HasSubstr("tie_word_embeddings"))));
  EXPECT_THAT(PlanError(ErrorCode::kNotFound, "storage/untied_absent"),
              AllOf(HasSubstr("lm_head.weight"),
                    HasSubstr("config.json does not say tie_word_embeddings")));
}

TEST(LoadPlan, ManyMissingTensorsAreListedUpToTen) {
  TempDir directory;
  std::filesystem::copy(FixturePath("storage/plain/config.json"), directory / "config.json");
  const float value = 0;
  WriteSafetensors(directory / "model.safetensors",
                   {{"other", DType::kF32, {1}, std::as_bytes(std::span(&value, 1))}});
  const std::string message =
      ErrorOf(ErrorCode::kNotFound, [&] { PlannedCheckpoint(directory.path(), LoadOptions{}); });
  EXPECT_THAT(message, AllOf(HasSubstr("21 of the model's tensors not found in model.safetensors"),
                             HasSubstr("and 11 more")));
}

TEST(LoadPlan, AWrongShapeSaysFoundAndExpected) {
  EXPECT_THAT(
      PlanError(ErrorCode::kDataLoss, "storage/wrong_shape", Int8()),
      ::testing::ContainsRegex("wrong_shape/model.safetensors: tensor " + std::string(kQ) +
                               " has shape \\[.*\\], expected \\[64, 64\\] by config.json"));
}

TEST(LoadPlan, AnIntegerWeightIsAnError) {
  TempDir directory;
  const Graph graph = testing::OneLinearGraph(4, 2);
  std::filesystem::copy(FixturePath("storage/plain/config.json"), directory / "config.json");
  const std::vector<std::byte> zeros(256);
  const auto bytes = [&](size_t count) { return std::span(zeros).first(count); };
  for (const DType dtype : {DType::kS32, DType::kS8, DType::kF8E4M3, DType::kBool}) {
    WriteSafetensors(
        directory / "model.safetensors",
        {{"embed.weight", DType::kBf16, {16, 2}, bytes(64)},
         {"linear.weight", dtype, {4, 2}, bytes(static_cast<size_t>(8 * ByteSize(dtype)))},
         {"head.weight", DType::kBf16, {16, 4}, bytes(128)}});
    const Checkpoint checkpoint = Checkpoint::Open(directory.path());
    for (const char* scheme : {"int8", "none"}) {
      EXPECT_THAT(ErrorOf(ErrorCode::kInvalidArgument,
                          [&] { MakeLoadPlan(checkpoint, graph, {.quantization = scheme}); }),
                  AllOf(HasSubstr("model.safetensors: tensor linear.weight has dtype " +
                                  std::string(SafetensorsName(dtype))),
                        HasSubstr("expected BF16, F16, F32 or F64")));
    }
  }
}

TEST(LoadPlan, UnexpectedTensorsAreOneWarning) {
  const PlannedCheckpoint planned = PlanFixture("storage/extra_tensors", Int8());
  ASSERT_EQ(planned.plan.warnings.size(), 1u);
  const std::string& warning = planned.plan.warnings[0];
  EXPECT_THAT(warning, AllOf(HasSubstr("2 of "), Not(HasSubstr("inv_freq"))));
  for (const CheckpointTensor& tensor : planned.checkpoint.tensors()) {
    const std::string& name = tensor.entry->name;
    bool wanted = name.find("inv_freq") != std::string::npos;
    for (const WeightDecl& decl : planned.graph.weights()) wanted = wanted || decl.name == name;
    if (!wanted) {
      EXPECT_THAT(warning, HasSubstr(name));
    }
  }
}

TEST(LoadPlan, ATiedHeadThatIsStoredTooIsComparedWithTheEmbedding) {
  EXPECT_THAT(PlanFixture("storage/tied_present_same", Int8()).plan.warnings, IsEmpty());
  const PlannedCheckpoint planned = PlanFixture("storage/tied_present_different", Int8());
  ASSERT_EQ(planned.plan.warnings.size(), 1u);
  EXPECT_THAT(planned.plan.warnings[0],
              AllOf(HasSubstr("lm_head.weight differs from model.embed_tokens.weight"),
                    HasSubstr("the head uses model.embed_tokens.weight")));
}

TEST(LoadPlan, PreQuantizedCheckpointsAreRefused) {
  int refused = 0;
  for (const auto& entry : std::filesystem::directory_iterator(FixturePath("prequant"))) {
    const std::string name = entry.path().filename().string();
    const Checkpoint checkpoint = Checkpoint::Open(entry.path().string());
    const std::optional<HfConfig> config = checkpoint.config().Object("quantization_config");
    const Graph graph = BuildModel(checkpoint.config());
    if (!config) {
      EXPECT_NO_THROW(MakeLoadPlan(checkpoint, graph, Int8())) << name;
      continue;
    }
    ++refused;
    for (const char* scheme : {"int8", "none"}) {
      EXPECT_THAT(ErrorOf(ErrorCode::kUnimplemented,
                          [&] { MakeLoadPlan(checkpoint, graph, {.quantization = scheme}); }),
                  AllOf(HasSubstr("\"" + config->String("quant_method") + "\""),
                        HasSubstr(name + "/config.json: quantization_config.quant_method")));
    }
  }
  EXPECT_GT(refused, 20);
}

TEST(LoadPlan, WeightsComeInFileOrder) {
  for (const char* fixture : {"storage/odd_order", "storage/sharded", "storage/plain"}) {
    const PlannedCheckpoint planned = PlanFixture(fixture, Int8());
    std::vector<const SafetensorsFile*> files;
    uint64_t last_end = 0;
    for (const PlannedWeight& weight : planned.plan.weights) {
      if (files.empty() || files.back() != weight.source.file) {
        EXPECT_THAT(files, Not(::testing::Contains(weight.source.file)));
        files.push_back(weight.source.file);
        last_end = 0;
      }
      EXPECT_GE(weight.source.entry->offset, last_end);
      last_end = weight.source.entry->offset + weight.source.entry->bytes;
    }
  }
}

TEST(FormatPlan, IsATableWithTotals) {
  const PlannedCheckpoint planned = PlanFixture("storage/extra_tensors", Int8());
  const std::string text = FormatPlan(planned.plan, planned.graph);
  EXPECT_THAT(text, ::testing::ContainsRegex(
                        std::string(kQ) + " +\\[64, 64\\] +bf16 +s8 per channel \\(f32 scales\\) "
                                          "+8.00 KiB +4.25 KiB +int8\n"));
  EXPECT_THAT(text, ::testing::ContainsRegex(
                        "model.norm.weight +\\[64\\] +bf16 +bf16 +128 B +128 B +norm\n"));
  EXPECT_THAT(text, HasSubstr("total: 21 tensors, 14 quantized (int8); "));
  EXPECT_THAT(text, HasSubstr(std::to_string(planned.plan.bytes_kept) + " bytes)\n"));
  EXPECT_THAT(text, HasSubstr("warning: " + planned.plan.warnings.at(0)));
}

}  // namespace
}  // namespace octavo
