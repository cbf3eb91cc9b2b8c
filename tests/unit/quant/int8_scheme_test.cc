#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <octavo/error.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "base/float16.h"
#include "checkpoint/safetensors_file.h"
#include "quant/scheme.h"
#include "test_support.h"

namespace octavo {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Quantized {
  std::vector<int8_t> values;  // [rows, in]
  std::vector<float> scales;   // [rows]
};

Quantized Quantize(const LinearLayer& layer, const void* source, int64_t row_begin = 0,
                   int64_t rows = -1) {
  if (rows < 0) rows = layer.out_features;
  Quantized result{std::vector<int8_t>(static_cast<size_t>(rows * layer.in_features)),
                   std::vector<float>(static_cast<size_t>(rows))};
  MakeScheme("int8")->QuantizePanel(layer, row_begin, rows, source, result.values.data(),
                                    result.scales.data());
  return result;
}

std::string ErrorOf(const LinearLayer& layer, const void* source, int64_t row_begin) {
  try {
    Quantize(layer, source, row_begin);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kDataLoss);
    return error.what();
  }
  return "no error";
}

// The oracle: codes and scales of vLLM's tpu_int8 formula, computed by torch.
class Oracle {
 public:
  Oracle() : file_(testing::FixturePath("oracles/a_int8_channel.safetensors")) {}

  std::vector<char> Bytes(const std::string& name) const {
    const TensorEntry* entry = file_.Find(name);
    if (entry == nullptr) throw std::runtime_error("no tensor " + name);
    std::vector<char> bytes(entry->bytes);
    file_.file().ReadAt(entry->offset, std::as_writable_bytes(std::span(bytes)));
    return bytes;
  }
  LinearLayer Layer(const std::string& name) const {
    const TensorEntry& entry = *file_.Find(name);
    return {name, entry.shape[0], entry.shape[1], entry.dtype};
  }

 private:
  SafetensorsFile file_;
};

class Int8Oracle : public ::testing::TestWithParam<const char*> {};

TEST_P(Int8Oracle, CodesAreEqualAndScalesBelongToThem) {
  const Oracle oracle;
  const std::string dtype = GetParam();
  const LinearLayer layer = oracle.Layer("weight." + dtype);  // [67, 256]
  const std::vector<char> source = oracle.Bytes("weight." + dtype);
  const Quantized got = Quantize(layer, source.data());

  const std::vector<char> codes = oracle.Bytes("tpu_int8.q." + dtype);
  ASSERT_EQ(codes.size(), got.values.size());
  EXPECT_EQ(std::memcmp(codes.data(), got.values.data(), codes.size()), 0);

  // The stored scale is ours rounded to the weight's type.
  const std::vector<char> stored = oracle.Bytes("tpu_int8.scale." + dtype);
  std::vector<float> expected(got.scales.size());
  ConvertToF32(layer.stored, stored.data(), layer.out_features, expected.data());
  for (size_t row = 0; row < expected.size(); ++row) {
    float rounded = got.scales[row];
    if (layer.stored == DType::kBf16) rounded = Bf16ToF32(F32ToBf16(rounded));
    if (layer.stored == DType::kF16) rounded = F16ToF32(F32ToF16(rounded));
    EXPECT_EQ(rounded, expected[row]) << "row " << row;
  }
}
INSTANTIATE_TEST_SUITE_P(DTypes, Int8Oracle, ::testing::Values("f32", "bf16", "f16"),
                         [](const auto& param) { return std::string(param.param); });

TEST(Int8Scheme, EveryWeightIsWithinHalfAStep) {
  const Oracle oracle;
  for (const char* dtype : {"f32", "bf16", "f16"}) {
    const LinearLayer layer = oracle.Layer(std::string("weight.") + dtype);
    const std::vector<char> source = oracle.Bytes(layer.tensor);
    std::vector<float> weights(static_cast<size_t>(layer.out_features * layer.in_features));
    ConvertToF32(layer.stored, source.data(), static_cast<int64_t>(weights.size()), weights.data());
    const Quantized got = Quantize(layer, source.data());
    for (size_t i = 0; i < weights.size(); ++i) {
      const double scale = got.scales[i / static_cast<size_t>(layer.in_features)];
      ASSERT_LE(std::fabs(weights[i] - got.values[i] * scale), 0.5001 * scale) << dtype << " " << i;
      ASSERT_GE(got.values[i], -127);
    }
  }
}

TEST(Int8Scheme, ScalesStayUnrounded) {
  const Oracle oracle;
  const LinearLayer layer = oracle.Layer("weight.bf16");
  const std::vector<char> source = oracle.Bytes("weight.bf16");
  std::vector<float> weights(static_cast<size_t>(layer.out_features * layer.in_features));
  ConvertToF32(layer.stored, source.data(), static_cast<int64_t>(weights.size()), weights.data());
  const Quantized got = Quantize(layer, source.data());
  for (int64_t row = 0; row < layer.out_features; ++row) {
    float largest = 1e-5f;
    for (int64_t column = 0; column < layer.in_features; ++column) {
      largest = std::max(largest, std::fabs(weights[row * layer.in_features + column]));
    }
    EXPECT_EQ(got.scales[row], largest / 127.0f) << "row " << row;
  }
}

TEST(Int8Scheme, PanelsGiveTheSameAsTheWhole) {
  const Oracle oracle;
  const LinearLayer layer = oracle.Layer("weight.bf16");
  std::vector<char> source = oracle.Bytes("weight.bf16");
  const Quantized whole = Quantize(layer, source.data());
  source.insert(source.begin(), 'x');  // from an odd address
  for (int64_t row = 0; row < layer.out_features; row += 16) {
    const int64_t rows = std::min<int64_t>(16, layer.out_features - row);
    const Quantized part =
        Quantize(layer, source.data() + 1 + row * layer.in_features * 2, row, rows);
    EXPECT_EQ(std::memcmp(part.values.data(), whole.values.data() + row * layer.in_features,
                          part.values.size()),
              0);
    EXPECT_EQ(std::memcmp(part.scales.data(), whole.scales.data() + row,
                          part.scales.size() * sizeof(float)),
              0);
  }
}

TEST(Int8Scheme, Float64IsRoundedToFloat32First) {
  const Oracle oracle;
  LinearLayer layer = oracle.Layer("weight.f32");
  const std::vector<char> bytes = oracle.Bytes("weight.f32");
  std::vector<float> weights(bytes.size() / sizeof(float));
  std::memcpy(weights.data(), bytes.data(), bytes.size());
  std::vector<double> doubles(weights.begin(), weights.end());
  for (double& value : doubles) value *= 1.0 + 1e-12;  // vanishes in float32
  const Quantized from_f32 = Quantize(layer, weights.data());
  layer.stored = DType::kF64;
  const Quantized from_f64 = Quantize(layer, doubles.data());
  EXPECT_EQ(from_f64.values, from_f32.values);
  EXPECT_EQ(from_f64.scales, from_f32.scales);
}

TEST(Int8Scheme, ZeroAndTinyRowsHaveAFiniteScale) {
  const std::vector<float> weights = {0, 0, -0.0f, 0, 1e-38f, -1e-40f, 1e-6f, 0};  // [2, 4]
  const Quantized got = Quantize({"w", 2, 4, DType::kF32}, weights.data());
  EXPECT_EQ(got.scales, (std::vector<float>{1e-5f / 127.0f, 1e-5f / 127.0f}));
  EXPECT_THAT(got.values, ElementsAre(0, 0, 0, 0, 0, 0, 13, 0));  // 1e-6 / (1e-5 / 127) = 12.7
}

TEST(Int8Scheme, AWeightThatIsNotFiniteIsNamedByAbsoluteRowAndColumn) {
  std::vector<float> weights(3 * 5, 0.5f);
  const LinearLayer layer{"model.layers.0.mlp.up_proj.weight", 3, 5, DType::kF32};
  weights[1 * 5 + 4] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(ErrorOf(layer, weights.data(), 0),
              HasSubstr("tensor model.layers.0.mlp.up_proj.weight, row 1, column 4: the weight is "
                        "nan, expected finite values"));
  EXPECT_THAT(ErrorOf(layer, weights.data(), 160), HasSubstr("row 161, column 4"));
  weights[0] = -std::numeric_limits<float>::infinity();
  EXPECT_THAT(ErrorOf(layer, weights.data(), 0), HasSubstr("row 0, column 0: the weight is -inf"));
}

TEST(Int8Scheme, SixteenBitTypesThatAreNotFiniteAreFound) {
  std::vector<uint16_t> weights(20 * 40, 0x3c00);
  weights[17 * 40 + 39] = 0x7f80;  // bf16: inf
  EXPECT_THAT(ErrorOf({"w", 20, 40, DType::kBf16}, weights.data(), 0),
              HasSubstr("row 17, column 39: the weight is inf"));
  weights[17 * 40 + 39] = 0xfe00;  // f16: nan
  EXPECT_THAT(ErrorOf({"w", 20, 40, DType::kF16}, weights.data(), 0),
              HasSubstr("row 17, column 39: the weight is "));
}

TEST(Int8Scheme, AFloat64BeyondFloat32IsAnError) {
  const std::vector<double> weights = {1, 2, 3, 4, 5, 1e300};  // [2, 3]
  EXPECT_THAT(ErrorOf({"w", 2, 3, DType::kF64}, weights.data(), 0),
              HasSubstr("row 1, column 2: the weight is inf in float32"));
}

TEST(Schemes, NamesAndAliases) {
  EXPECT_EQ(MakeScheme("none"), nullptr);
  EXPECT_EQ(MakeScheme("int8")->name(), "int8");
  EXPECT_EQ(MakeScheme("tpu_int8")->name(), "int8");
  for (const std::string& name : SchemeNames()) EXPECT_NO_THROW(MakeScheme(name)) << name;
  EXPECT_THAT(SchemeNames(), ElementsAre("none", "int8", "tpu_int8"));
}

TEST(Schemes, AnUnknownNameListsTheKnownOnes) {
  for (const char* name : {"int7", "", "INT8", "int8 "}) {
    try {
      MakeScheme(name);
      ADD_FAILURE() << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_THAT(error.what(), HasSubstr("\"" + std::string(name) + "\""));
      EXPECT_THAT(error.what(), HasSubstr("none, int8, tpu_int8"));
    }
  }
}

TEST(Int8Scheme, RecipeIsPerChannelWithSixteenBitActivations) {
  const LinearRecipe recipe = MakeScheme("int8")->RecipeFor({"w", 7, 5, DType::kF16});
  EXPECT_FALSE(recipe.keep);
  EXPECT_EQ(recipe.format, WeightFormat::S8Channel());
  EXPECT_EQ(recipe.activations, ActivationTreatment::k16Bit);
}

}  // namespace
}  // namespace octavo
