// RowKernels of every instruction set that this CPU runs, against the same formulas in double.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/cpu_features.h"
#include "base/float16.h"
#include "kernels/dispatch.h"

namespace octavo {
namespace {

std::vector<float> Random(int64_t count, float deviation, uint32_t seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(0.0f, deviation);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(engine);
  return values;
}

class RowKernelsTest : public testing::TestWithParam<const KernelTable*> {
 protected:
  void SetUp() override {
    if (!GetParam()->supported(HostCpuFeatures()))
      GTEST_SKIP() << "this CPU lacks the instructions";
    rows_ = ResolveKernels(GetParam()->isa).rows;
  }
  RowKernels rows_;
};

TEST_P(RowKernelsTest, RmsNormOfAnyWidth) {
  for (const int64_t width : {1, 12, 16, 33, 64, 72, 576, 2048, 4099}) {
    const std::vector<float> x = Random(width, 3.0f, 1);
    const std::vector<float> weight = Random(width, 1.0f, 2);
    for (const float offset : {0.0f, 1.0f}) {
      std::vector<float> y(static_cast<size_t>(width) + 1, 7.0f);
      rows_.rms_norm(x.data(), weight.data(), 1e-5f, offset, width, y.data());
      double squares = 0.0;
      for (const float value : x) squares += double{value} * value;
      const double inverse = 1.0 / std::sqrt(squares / static_cast<double>(width) + 1e-5);
      for (size_t i = 0; i < x.size(); ++i) {
        const double expected = x[i] * inverse * (double{weight[i]} + offset);
        ASSERT_NEAR(y[i], expected, 1e-6 * std::abs(expected) + 1e-7) << width << " at " << i;
      }
      EXPECT_EQ(y.back(), 7.0f) << "wrote past " << width;
    }
  }
}

TEST_P(RowKernelsTest, RopeRotatesHalvesAndLeavesTheRest) {
  struct Case {
    int64_t head_dim, rotary_dim;
  };
  for (const Case c : {Case{64, 64}, Case{12, 12}, Case{80, 32}, Case{72, 72}, Case{128, 128}}) {
    const int64_t heads = 3;
    const int64_t half = c.rotary_dim / 2;
    const std::vector<float> before = Random(heads * c.head_dim, 1.0f, 3);
    std::vector<float> cosines, sines;
    for (int64_t i = 0; i < half; ++i) {
      cosines.push_back(std::cos(0.37f * static_cast<float>(i)));
      sines.push_back(std::sin(0.37f * static_cast<float>(i)));
    }
    std::vector<float> x = before;
    rows_.rope(x.data(), cosines.data(), sines.data(), heads, c.head_dim, c.rotary_dim);
    for (int64_t head = 0; head < heads; ++head) {
      const float* from = before.data() + head * c.head_dim;
      const float* got = x.data() + head * c.head_dim;
      for (int64_t i = 0; i < c.head_dim; ++i) {
        double expected = from[i];
        if (i < half) {
          expected = double{from[i]} * cosines[i] - double{from[i + half]} * sines[i];
        } else if (i < c.rotary_dim) {
          expected = double{from[i]} * cosines[i - half] + double{from[i - half]} * sines[i - half];
        }
        ASSERT_NEAR(got[i], expected, 4e-7) << c.head_dim << " head " << head << " dim " << i;
      }
    }
  }
}

double Activated(Activation activation, double x) {
  switch (activation) {
    case Activation::kSilu:
      return x / (1.0 + std::exp(-x));
    case Activation::kGelu:
      return 0.5 * x * (1.0 + std::erf(x / std::sqrt(2.0)));
    case Activation::kGeluTanh:
      return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x)));
    case Activation::kRelu:
      return x > 0.0 ? x : 0.0;
  }
  return 0.0;
}

TEST_P(RowKernelsTest, ActivationsOverTheWholeRange) {
  std::vector<float> gate;
  for (int i = -4000; i <= 4000; ++i) gate.push_back(static_cast<float>(i) * 0.005f);
  for (const float extreme : {-1e30f, -100.0f, -88.0f, -1e-20f, 0.0f, 88.0f, 100.0f, 1e30f}) {
    gate.push_back(extreme);
  }
  const std::vector<float> up(gate.size(), 1.0f);
  std::vector<float> y(gate.size());
  for (const Activation activation :
       {Activation::kSilu, Activation::kGelu, Activation::kGeluTanh, Activation::kRelu}) {
    rows_.gated_activation(gate.data(), up.data(), activation, static_cast<int64_t>(gate.size()),
                           y.data());
    for (size_t i = 0; i < gate.size(); ++i) {
      const double expected = Activated(activation, gate[i]);
      // Gelu's tail is a difference from 1, as it is in float32 everywhere: absolute error there.
      const double tolerance =
          4e-7 * std::abs(expected) + 1.3e-7 * std::min(5.0f, std::abs(gate[i]));
      ASSERT_NEAR(y[i], expected, tolerance) << static_cast<int>(activation) << " of " << gate[i];
    }
  }
}

TEST_P(RowKernelsTest, SiluIsRelativelyAccurate) {
  std::vector<float> gate;
  for (int i = -8000; i <= 8000; ++i) gate.push_back(static_cast<float>(i) * 0.01f);
  const std::vector<float> up = Random(static_cast<int64_t>(gate.size()), 1.0f, 4);
  std::vector<float> y(gate.size());
  rows_.gated_activation(gate.data(), up.data(), Activation::kSilu,
                         static_cast<int64_t>(gate.size()), y.data());
  for (size_t i = 0; i < gate.size(); ++i) {
    const double expected = Activated(Activation::kSilu, gate[i]) * up[i];
    ASSERT_NEAR(y[i], expected, 5e-7 * std::abs(expected)) << gate[i];
  }
}

TEST_P(RowKernelsTest, NotANumberStaysOne) {
  const std::vector<float> gate(19, std::numeric_limits<float>::quiet_NaN());
  const std::vector<float> up(19, 1.0f);
  std::vector<float> y(19, 0.0f);
  for (const Activation activation :
       {Activation::kSilu, Activation::kGelu, Activation::kGeluTanh, Activation::kRelu}) {
    rows_.gated_activation(gate.data(), up.data(), activation, 19, y.data());
    for (const float value : y) EXPECT_TRUE(std::isnan(value)) << static_cast<int>(activation);
  }
}

TEST_P(RowKernelsTest, AddOfAnyWidth) {
  for (const int64_t width : {1, 7, 16, 100}) {
    const std::vector<float> a = Random(width, 1.0f, 5), b = Random(width, 1.0f, 6);
    std::vector<float> y = a;
    rows_.add(y.data(), b.data(), width, y.data());
    for (size_t i = 0; i < a.size(); ++i) EXPECT_EQ(y[i], a[i] + b[i]);
  }
}

TEST_P(RowKernelsTest, Widens16BitTypesExactly) {
  std::vector<uint16_t> words(65536 + 5);
  for (size_t i = 0; i < words.size(); ++i) words[i] = static_cast<uint16_t>(i);
  std::vector<char> bytes(words.size() * 2 + 1);
  std::memcpy(bytes.data() + 1, words.data(), words.size() * 2);  // not aligned
  std::vector<float> out(words.size());
  for (const DType dtype : {DType::kBf16, DType::kF16}) {
    rows_.to_f32(dtype, bytes.data() + 1, static_cast<int64_t>(words.size()), out.data());
    for (size_t i = 0; i < words.size(); ++i) {
      const float expected = dtype == DType::kBf16 ? Bf16ToF32(words[i]) : F16ToF32(words[i]);
      if (std::isnan(expected)) {
        ASSERT_TRUE(std::isnan(out[i])) << words[i];
      } else {
        ASSERT_EQ(out[i], expected) << Name(dtype) << " " << words[i];
        ASSERT_EQ(std::signbit(out[i]), std::signbit(expected));
      }
    }
  }
}

TEST_P(RowKernelsTest, NarrowsToNearestEven) {
  std::vector<float> values = Random(1000, 1.0f, 7);
  for (const float scale : {1e-7f, 1e-5f, 1e4f, 1e38f}) {
    for (const float value : Random(200, 1.0f, 8)) values.push_back(value * scale);
  }
  for (const float special :
       {0.0f, -0.0f, 65519.0f, 65520.0f, 1.00390625f, 1.01171875f, 3e-8f,
        std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    values.push_back(special);
  }
  const int64_t count = static_cast<int64_t>(values.size());
  std::vector<uint16_t> out(values.size() + 1, 0xabcd);
  for (const DType dtype : {DType::kBf16, DType::kF16}) {
    rows_.from_f32(dtype, values.data(), count, out.data());
    for (size_t i = 0; i < values.size(); ++i) {
      const bool bf16 = dtype == DType::kBf16;
      if (std::isnan(values[i])) {
        ASSERT_TRUE(std::isnan(bf16 ? Bf16ToF32(out[i]) : F16ToF32(out[i])));
      } else {
        ASSERT_EQ(out[i], bf16 ? F32ToBf16(values[i]) : F32ToF16(values[i])) << values[i];
      }
    }
    EXPECT_EQ(out.back(), 0xabcd) << "wrote past the end";
  }
  std::vector<float> copied(values.size());
  rows_.from_f32(DType::kF32, values.data(), count, copied.data());
  EXPECT_EQ(std::memcmp(copied.data(), values.data(), values.size() * sizeof(float)), 0);
}

TEST_P(RowKernelsTest, SoftmaxStatistics) {
  for (const int64_t count : {1, 15, 16, 63, 64, 300, 49152}) {
    const std::vector<float> x = Random(count, 8.0f, 9);
    float largest = 0.0f, sum = 0.0f;
    rows_.softmax_statistics(x.data(), count, &largest, &sum);
    EXPECT_EQ(largest, *std::max_element(x.begin(), x.end()));
    double expected = 0.0;
    for (const float value : x) expected += std::exp(double{value} - largest);
    EXPECT_NEAR(sum, expected, 5e-7 * expected) << count;
  }
}

TEST_P(RowKernelsTest, SoftmaxStatisticsOfMaskedLogits) {
  std::vector<float> x(40, -std::numeric_limits<float>::infinity());
  x[3] = 2.0f;
  x[39] = 2.0f;
  float largest = 0.0f, sum = 0.0f;
  rows_.softmax_statistics(x.data(), 40, &largest, &sum);
  EXPECT_EQ(largest, 2.0f);
  EXPECT_EQ(sum, 2.0f);
}

std::string IsaName(const testing::TestParamInfo<const KernelTable*>& info) {
  return info.param->isa;
}
INSTANTIATE_TEST_SUITE_P(EachIsa, RowKernelsTest,
                         testing::ValuesIn(AllKernelTables().begin(), AllKernelTables().end()),
                         IsaName);

}  // namespace
}  // namespace octavo
