// Linear kernels of every instruction set that this CPU has, against sums in float64.
#include <gtest/gtest.h>

#include <algorithm>

#include "unit/kernels/kernel_test_support.h"

namespace octavo {
namespace {

using testing::ArgsOf;
using testing::FencedArray;
using testing::Gaussian;
using testing::Prepared;
using testing::RunLinear;
using testing::SupportedTables;
using testing::TestWeight;

constexpr LinearFormat kFormats[kLinearFormats] = {LinearFormat::kF32,     LinearFormat::kBf16,
                                                   LinearFormat::kF16,     LinearFormat::kS8Channel,
                                                   LinearFormat::kS8Block, LinearFormat::kS4Block};
constexpr ActivationMode kModes[kActivationModes] = {ActivationMode::kF32, ActivationMode::k16Bit,
                                                     ActivationMode::kS8Token};

const LinearKernel& KernelOf(const KernelTable& table, LinearFormat format, ActivationMode mode) {
  return table.linear[static_cast<int>(format)][static_cast<int>(mode)];
}

// Calls body(table, kernel, format, mode) for each.
template <typename Body>
void ForEachKernel(Body body) {
  for (const KernelTable& table : SupportedTables()) {
    for (const LinearFormat format : kFormats) {
      for (const ActivationMode mode : kModes) {
        if (!IsComputable(format, mode)) continue;
        const LinearKernel& kernel = KernelOf(table, format, mode);
        SCOPED_TRACE(std::string(table.isa) + " " + kernel.name);
        body(kernel, format, mode);
      }
    }
  }
}

struct Shape {
  int64_t m, n, k;
};

// Largest magnitude of x[0:k).
float Largest(const float* x, int64_t k) {
  float largest = 0.0f;
  for (int64_t i = 0; i < k; ++i) largest = std::fmax(largest, std::fabs(x[i]));
  return largest;
}

// Float32 sums err by a few units of 2^-24 of the sum of magnitudes. Integer planes add half a step
// of the 16-bit grid per column, at worst, and int8 activations half a step of theirs.
double StepOf(ActivationMode mode, double largest) {
  if (mode == ActivationMode::kF32) return 0.0;
  return mode == ActivationMode::k16Bit ? largest / 32639.0 : largest / 127.0;
}

void ExpectNear(const std::vector<float>& y, const TestWeight& weight, const float* x, int64_t m,
                ActivationMode mode, bool with_bias) {
  for (int64_t row = 0; row < m; ++row) {
    const float* values = x + row * weight.k;
    const double half_step = 0.51 * StepOf(mode, double{Largest(values, weight.k)});
    for (int64_t column = 0; column < weight.n; ++column) {
      double expected = with_bias ? double{weight.bias[static_cast<size_t>(column)]} : 0.0;
      double tolerance = 4e-7 * std::fabs(expected) + 1e-30;
      for (int64_t i = 0; i < weight.k; ++i) {
        const double w = weight.exact[static_cast<size_t>(column * weight.k + i)];
        expected += double{values[i]} * w;
        tolerance += std::fabs(w) * (2e-6 * std::fabs(double{values[i]}) + half_step);
      }
      ASSERT_NEAR(y[static_cast<size_t>(row * weight.n + column)], expected, tolerance)
          << "row " << row << " column " << column << " of m " << m << " n " << weight.n << " k "
          << weight.k;
    }
  }
}

TEST(Linear, MatchesFloat64ForAllFormatsModesAndShapes) {
  const Shape shapes[] = {{1, 1, 1},    {1, 16, 4},   {1, 64, 64},  {1, 70, 3},    {2, 33, 17},
                          {3, 100, 31}, {4, 48, 255}, {5, 49, 256}, {6, 17, 257},  {7, 5, 2},
                          {8, 128, 66}, {13, 81, 9},  {19, 65, 34}, {31, 35, 515}, {1, 200, 1030}};
  ForEachKernel([&](const LinearKernel& kernel, LinearFormat format, ActivationMode mode) {
    uint32_t seed = 1;
    for (const Shape& shape : shapes) {
      const int64_t blocks[] = {32, 64, 128, format == LinearFormat::kS4Block ? 0 : 32};
      const int64_t block = blocks[++seed % 4];
      const auto weight = TestWeight::Random(format, shape.n, shape.k, seed, block);
      const std::vector<float> x = Gaussian(static_cast<size_t>(shape.m * shape.k), seed + 100);
      FencedArray<float> fenced(x.size());
      std::memcpy(fenced.data(), x.data(), x.size() * sizeof(float));
      for (const bool with_bias : {false, true}) {
        const std::vector<float> y = RunLinear(kernel, *weight, fenced.data(), shape.m, with_bias);
        ExpectNear(y, *weight, x.data(), shape.m, mode, with_bias);
      }
    }
  });
}

TEST(Linear, WritesOnlyItsOwnRowsAndColumns) {
  ForEachKernel([](const LinearKernel& kernel, LinearFormat format, ActivationMode) {
    constexpr int64_t kRows = 9, kOutputs = 75, kInputs = 21, kStride = 90;
    const auto weight = TestWeight::Random(format, kOutputs, kInputs, 5);
    const std::vector<float> x = Gaussian(kRows * kInputs, 6);
    const Prepared prepared(kernel, x.data(), kRows, kInputs);
    std::vector<float> y(kRows * kStride, -77.0f);
    const LinearArgs args = ArgsOf(*weight, true, prepared.data(), y.data(), kStride);
    kernel.run(args, 4, 4, 0, kOutputs);  // no rows
    kernel.run(args, 0, kRows, 16, 16);   // no columns
    for (const float value : y) ASSERT_EQ(value, -77.0f);
    kernel.run(args, 2, 8, 16, kOutputs);
    for (int64_t row = 0; row < kRows; ++row) {
      for (int64_t column = 0; column < kStride; ++column) {
        const bool written = row >= 2 && row < 8 && column >= 16 && column < kOutputs;
        ASSERT_EQ(y[static_cast<size_t>(row * kStride + column)] != -77.0f, written)
            << "row " << row << " column " << column;
      }
    }
  });
}

// A batch whose rows need different numbers of planes: every third has an outlier.
std::vector<float> MixedRows(int64_t m, int64_t k) {
  std::vector<float> x = Gaussian(static_cast<size_t>(m * k), 11);
  for (int64_t row = 0; row < m; ++row) {
    if (row % 3 == 1) x[static_cast<size_t>(row * k + row % k)] = 3000.0f;
    if (row % 5 == 2) x[static_cast<size_t>(row * k + row % k)] = 1e6f;
  }
  return x;
}

TEST(Linear, RowsDoNotDependOnRangesOrOtherRows) {
  ForEachKernel([](const LinearKernel& kernel, LinearFormat format, ActivationMode) {
    constexpr int64_t kRows = 23, kOutputs = 16 * 11 + 5, kInputs = 523;
    const auto weight = TestWeight::Random(format, kOutputs, kInputs, 7);
    const std::vector<float> x = MixedRows(kRows, kInputs);
    const std::vector<float> whole = RunLinear(kernel, *weight, x.data(), kRows);
    for (int64_t rows : {1, 2, 3, 4, 5, 6, 8, 11}) {
      for (int64_t begin = 0; begin < kRows; begin += rows) {
        const int64_t count = std::min(rows, kRows - begin);
        const std::vector<float> part =
            RunLinear(kernel, *weight, x.data() + begin * kInputs, count);
        ASSERT_EQ(
            std::memcmp(part.data(), whole.data() + begin * kOutputs, part.size() * sizeof(float)),
            0)
            << rows << " rows from " << begin;
      }
    }
    const Prepared prepared(kernel, x.data(), kRows, kInputs);
    for (int64_t columns : {16, 32, 48, 80, 112}) {
      std::vector<float> y(whole.size());
      const LinearArgs args = ArgsOf(*weight, true, prepared.data(), y.data(), kOutputs);
      for (int64_t begin = 0; begin < kOutputs; begin += columns) {
        const int64_t end = std::min(begin + columns, kOutputs);
        kernel.run(args, 0, 7, begin, end);
        kernel.run(args, 7, kRows, begin, end);
      }
      ASSERT_EQ(std::memcmp(y.data(), whole.data(), y.size() * sizeof(float)), 0)
          << columns << " columns at a time";
    }
  });
}

// Root mean square difference of y from float64, of a weight of s8 with one row of activations,
// without what the outlier itself contributes to the expected value's size.
double RmsError(const std::vector<double>& y, const TestWeight& weight,
                const std::vector<float>& x) {
  double squares = 0.0;
  for (int64_t column = 0; column < weight.n; ++column) {
    double expected = 0.0;
    for (int64_t i = 0; i < weight.k; ++i) {
      expected += double{x[static_cast<size_t>(i)]} *
                  weight.exact[static_cast<size_t>(column * weight.k + i)];
    }
    const double difference = y[static_cast<size_t>(column)] - expected;
    squares += difference * difference;
  }
  return std::sqrt(squares / static_cast<double>(weight.n));
}

std::vector<double> WithBf16Activations(const TestWeight& weight, const std::vector<float>& x) {
  std::vector<double> y(static_cast<size_t>(weight.n));
  for (int64_t column = 0; column < weight.n; ++column) {
    for (int64_t i = 0; i < weight.k; ++i) {
      y[static_cast<size_t>(column)] += double{Bf16ToF32(F32ToBf16(x[static_cast<size_t>(i)]))} *
                                        weight.exact[static_cast<size_t>(column * weight.k + i)];
    }
  }
  return y;
}

TEST(Linear, SixteenBitActivationsAreNeverWorseThanBf16) {
  constexpr int64_t kOutputs = 64;
  for (const KernelTable& table : SupportedTables()) {
    const LinearKernel& kernel = KernelOf(table, LinearFormat::kS8Channel, ActivationMode::k16Bit);
    for (const int64_t k : {64, 576, 2048}) {
      const auto weight = TestWeight::Random(LinearFormat::kS8Channel, kOutputs, k, 21);
      for (const float outlier :
           {1.0f, 30.0f, 100.0f, 150.0f, 200.0f, 300.0f, 1000.0f, 3000.0f, 10000.0f}) {
        for (const int64_t count : {1, 3}) {
          std::vector<float> x = Gaussian(static_cast<size_t>(k), 22);
          for (int64_t i = 0; i < count; ++i) {
            // Exact in bfloat16, so that the small values are all that bfloat16 gets wrong. The
            // others are a tenth of the first: they must not make the grid look good enough.
            const float value = Bf16ToF32(F32ToBf16(i == 0 ? outlier : 0.1f * outlier));
            x[static_cast<size_t>(7 + 13 * i)] = value;
          }
          const std::vector<float> y = RunLinear(kernel, *weight, x.data(), 1, false);
          const double error = RmsError({y.begin(), y.end()}, *weight, x);
          const double bf16_error = RmsError(WithBf16Activations(*weight, x), *weight, x);
          EXPECT_LT(error, bf16_error)
              << table.isa << " k " << k << " outlier " << outlier << " x " << count;
        }
      }
    }
  }
}

TEST(Linear, SixteenBitActivationsOfSparseAndConstantRows) {
  constexpr int64_t kOutputs = 32, kInputs = 200;
  for (const KernelTable& table : SupportedTables()) {
    const LinearKernel& kernel = KernelOf(table, LinearFormat::kS8Channel, ActivationMode::k16Bit);
    const auto weight = TestWeight::Random(LinearFormat::kS8Channel, kOutputs, kInputs, 31);
    std::vector<std::vector<float>> rows(5, std::vector<float>(kInputs, 0.0f));
    rows[1][17] = -3.25f;
    rows[2].assign(kInputs, 0.7f);
    for (float& value : rows[3]) value = 1e-33f;
    for (float& value : rows[4]) value = -3e33f;
    for (const std::vector<float>& x : rows) {
      const std::vector<float> y = RunLinear(kernel, *weight, x.data(), 1, false);
      const double largest = double{Largest(x.data(), kInputs)};
      EXPECT_LE(RmsError({y.begin(), y.end()}, *weight, x), 2e-4 * largest) << table.isa;
      if (largest == 0.0) {
        for (const float value : y) EXPECT_EQ(value, 0.0f);
      }
    }
  }
}

TEST(Linear, NanAndInfinityComeOut) {
  ForEachKernel([](const LinearKernel& kernel, LinearFormat format, ActivationMode) {
    constexpr int64_t kRows = 6, kOutputs = 40, kInputs = 37;
    const auto weight = TestWeight::Random(format, kOutputs, kInputs, 41);
    std::vector<float> x = Gaussian(kRows * kInputs, 42);
    x[1 * kInputs + 36] = NAN;
    x[2 * kInputs + 5] = INFINITY;
    x[4 * kInputs] = -INFINITY;
    const std::vector<float> y = RunLinear(kernel, *weight, x.data(), kRows);
    for (int64_t row = 0; row < kRows; ++row) {
      for (int64_t column = 0; column < kOutputs; ++column) {
        EXPECT_EQ(std::isfinite(y[static_cast<size_t>(row * kOutputs + column)]),
                  row != 1 && row != 2 && row != 4)
            << "row " << row << " column " << column;
      }
    }
  });
}

// Where activations are integers on the grid already, sums below 2^24 are exact.
TEST(Linear, IntegersAreExact) {
  constexpr int64_t kRows = 5, kOutputs = 50, kInputs = 150;
  const std::vector<float> noise = Gaussian(kOutputs * kInputs, 51);
  std::vector<float> codes(noise.size());
  for (size_t i = 0; i < noise.size(); ++i) {
    codes[i] = std::fmin(std::fmax(std::nearbyint(noise[i]), -3.0f), 3.0f);
  }
  TestWeight weight(LinearFormat::kS8Channel, kOutputs, kInputs);
  weight.Set(codes, std::vector<float>(kOutputs, 1.0f));
  std::mt19937 random(52);
  std::uniform_int_distribution<int> any(-32639, 32639);
  std::vector<float> x(kRows * kInputs);
  for (float& value : x) value = static_cast<float>(any(random));
  for (int64_t row = 0; row < kRows; ++row) x[static_cast<size_t>(row * kInputs)] = 32639.0f;
  for (const KernelTable& table : SupportedTables()) {
    for (const ActivationMode mode : {ActivationMode::kF32, ActivationMode::k16Bit}) {
      const LinearKernel& kernel = KernelOf(table, LinearFormat::kS8Channel, mode);
      const std::vector<float> y = RunLinear(kernel, weight, x.data(), kRows, false);
      for (int64_t row = 0; row < kRows; ++row) {
        for (int64_t column = 0; column < kOutputs; ++column) {
          double expected = 0.0;
          for (int64_t i = 0; i < kInputs; ++i) {
            expected += double{x[static_cast<size_t>(row * kInputs + i)]} *
                        weight.exact[static_cast<size_t>(column * kInputs + i)];
          }
          ASSERT_LT(std::fabs(expected), 0x1p24);
          ASSERT_EQ(y[static_cast<size_t>(row * kOutputs + column)], expected) << kernel.name;
        }
      }
    }
  }
}

// Sums of digits times weights wrap around an int32 from k = 65,793 on, and their true value leaves
// it at 131,072.
TEST(Linear, HugeInputsDoNotOverflow) {
  constexpr int64_t kOutputs = 3;
  for (const KernelTable& table : SupportedTables()) {
    const LinearKernel& kernel = KernelOf(table, LinearFormat::kS8Channel, ActivationMode::k16Bit);
    for (const int64_t k : {int64_t{8191}, int64_t{70001}, int64_t{131071}, int64_t{140003}}) {
      TestWeight weight(LinearFormat::kS8Channel, kOutputs, k);
      std::vector<float> codes(static_cast<size_t>(kOutputs * k));
      for (int64_t i = 0; i < k; ++i) {
        codes[static_cast<size_t>(i)] = -128.0f;
        codes[static_cast<size_t>(k + i)] = 127.0f;
        codes[static_cast<size_t>(2 * k + i)] = i % 2 == 0 ? -128.0f : 127.0f;
      }
      weight.Set(codes, std::vector<float>(kOutputs, 0.5f));
      for (const float value : {-1.5f, 1.5f}) {
        const std::vector<float> x(static_cast<size_t>(k), value);
        const std::vector<float> y = RunLinear(kernel, weight, x.data(), 1, false);
        for (int64_t column = 0; column < kOutputs; ++column) {
          double expected = 0.0, magnitude = 0.0;
          for (int64_t i = 0; i < k; ++i) {
            const double w = weight.exact[static_cast<size_t>(column * k + i)];
            expected += double{value} * w;
            magnitude += std::fabs(double{value} * w);
          }
          ASSERT_NEAR(y[static_cast<size_t>(column)], expected, 2e-6 * magnitude)
              << kernel.name << " k " << k;
        }
      }
    }
  }
}

}  // namespace
}  // namespace octavo
