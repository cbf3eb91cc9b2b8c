// quantize_rows_s8 and pack_rows of every instruction set that this CPU has, against the scalar
// ones and against codes that vLLM's formula gave elsewhere.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "test_support.h"
#include "unit/kernels/kernel_test_support.h"

namespace octavo {
namespace {

using testing::FencedArray;
using testing::FixturePath;
using testing::Gaussian;
using testing::ReadWholeFile;
using testing::SupportedTables;

std::vector<char> Stored(const std::vector<float>& values, DType dtype) {
  std::vector<char> bytes(values.size() * static_cast<size_t>(ByteSize(dtype)));
  for (size_t i = 0; i < values.size(); ++i) {
    if (dtype == DType::kF32) {
      std::memcpy(bytes.data() + 4 * i, &values[i], 4);
    } else {
      const uint16_t bits = dtype == DType::kBf16 ? F32ToBf16(values[i]) : F32ToF16(values[i]);
      std::memcpy(bytes.data() + 2 * i, &bits, 2);
    }
  }
  return bytes;
}

struct Quantized {
  std::vector<int8_t> codes;
  std::vector<float> scales;
  int64_t bad_row;
};

Quantized Quantize(const KernelTable& table, DType dtype, const std::vector<char>& source,
                   int64_t rows, int64_t k) {
  FencedArray<char> fenced(source.size());  // ends at a fence, so it is seldom aligned
  std::memcpy(fenced.data(), source.data(), source.size());
  FencedArray<int8_t> codes(static_cast<size_t>(rows * k));
  Quantized result;
  result.scales.assign(static_cast<size_t>(rows), -1.0f);
  result.bad_row =
      table.quantize_rows_s8(dtype, fenced.data(), rows, k, codes.data(), result.scales.data());
  result.codes.assign(codes.data(), codes.data() + codes.size());
  return result;
}

TEST(QuantizeRows, SameCodesOnEveryInstructionSet) {
  for (const DType dtype : {DType::kBf16, DType::kF16, DType::kF32}) {
    for (const int64_t k : {1, 3, 8, 15, 16, 17, 63, 64, 65, 129, 576}) {
      constexpr int64_t kRows = 5;
      std::vector<float> values = Gaussian(static_cast<size_t>(kRows * k), 61);
      for (int64_t i = 0; i < k; ++i) {
        // Row 1 is zero, row 2 has ties, row 3 is smaller than the smallest scale.
        values[static_cast<size_t>(k + i)] = 0.0f;
        values[static_cast<size_t>(2 * k + i)] = static_cast<float>(i % 255) * 0.5f - 63.5f;
        values[static_cast<size_t>(3 * k + i)] *= 1e-7f;
      }
      values[static_cast<size_t>(2 * k)] = 127.0f;  // a scale of 1
      const std::vector<char> source = Stored(values, dtype);
      const Quantized expected = Quantize(ResolveKernels("scalar"), dtype, source, kRows, k);
      ASSERT_EQ(expected.bad_row, -1);
      for (const KernelTable& table : SupportedTables()) {
        const Quantized got = Quantize(table, dtype, source, kRows, k);
        EXPECT_EQ(got.bad_row, -1);
        EXPECT_EQ(got.codes, expected.codes) << table.isa << " " << Name(dtype) << " k " << k;
        EXPECT_EQ(got.scales, expected.scales) << table.isa << " " << Name(dtype) << " k " << k;
      }
    }
  }
}

TEST(QuantizeRows, NamesTheRowOfANanOrInfinity) {
  for (const KernelTable& table : SupportedTables()) {
    for (const DType dtype : {DType::kBf16, DType::kF16, DType::kF32}) {
      for (const float bad : {NAN, -NAN, INFINITY, -INFINITY}) {
        for (const int64_t k : {int64_t{1}, int64_t{7}, int64_t{100}, int64_t{257}}) {
          for (int64_t column = 0; column < k; column += 1 + k / 3) {
            std::vector<float> values = Gaussian(static_cast<size_t>(4 * k), 71);
            values[static_cast<size_t>(2 * k + column)] = bad;
            EXPECT_EQ(Quantize(table, dtype, Stored(values, dtype), 4, k).bad_row, 2)
                << table.isa << " " << Name(dtype) << " k " << k << " column " << column;
          }
        }
      }
    }
  }
}

// The tensors of a safetensors file, enough for a fixture known to be good.
class Fixture {
 public:
  explicit Fixture(const std::string& path) : bytes_(ReadWholeFile(path)) {
    uint64_t header = 0;
    std::memcpy(&header, bytes_.data(), 8);
    json_ = nlohmann::json::parse(bytes_.substr(8, header));
    data_ = 8 + header;
  }
  std::vector<int64_t> Shape(const std::string& name) const { return json_.at(name).at("shape"); }
  std::vector<char> Bytes(const std::string& name) const {
    const std::vector<size_t> range = json_.at(name).at("data_offsets");
    return {bytes_.begin() + static_cast<int64_t>(data_ + range[0]),
            bytes_.begin() + static_cast<int64_t>(data_ + range[1])};
  }

 private:
  std::string bytes_;
  nlohmann::json json_;
  size_t data_;
};

TEST(QuantizeRows, CodesEqualTheOracle) {
  const Fixture fixture(FixturePath("oracles/a_int8_channel.safetensors"));
  const std::pair<DType, const char*> kinds[] = {
      {DType::kF32, "f32"}, {DType::kBf16, "bf16"}, {DType::kF16, "f16"}};
  for (const auto& [dtype, spelled] : kinds) {
    const std::string suffix = spelled;
    const std::vector<int64_t> shape = fixture.Shape("weight." + suffix);
    const std::vector<char> codes = fixture.Bytes("tpu_int8.q." + suffix);
    const std::vector<char> stored_scales = fixture.Bytes("tpu_int8.scale." + suffix);
    for (const KernelTable& table : SupportedTables()) {
      const Quantized got =
          Quantize(table, dtype, fixture.Bytes("weight." + suffix), shape[0], shape[1]);
      ASSERT_EQ(got.codes.size(), codes.size());
      EXPECT_EQ(std::memcmp(got.codes.data(), codes.data(), codes.size()), 0)
          << table.isa << " " << suffix;
      // The fixture's scales are rounded to the weight's type.
      EXPECT_EQ(Stored(got.scales, dtype), stored_scales) << table.isa << " " << suffix;
    }
  }
}

TEST(PackRows, SameBytesOnEveryInstructionSet) {
  struct Case {
    int64_t n, k;
  };
  for (const Case& c : {Case{1, 1}, Case{16, 16}, Case{17, 5}, Case{40, 33}, Case{64, 64},
                        Case{50, 131}, Case{33, 260}}) {
    for (const DType element : {DType::kS8, DType::kBf16, DType::kF32}) {
      const int64_t bytes = ByteSize(element);
      FencedArray<unsigned char> source(static_cast<size_t>(c.n * c.k * bytes));
      std::mt19937 random(81);
      for (size_t i = 0; i < source.size(); ++i) {
        source[i] = static_cast<unsigned char>(random() % 255 + 1);  // never what padding is
      }
      const size_t packed_bytes = static_cast<size_t>(PackedBytes(
          element == DType::kS8 ? WeightFormat::S8Channel() : WeightFormat::Plain(element), c.n,
          c.k));
      std::vector<unsigned char> expected(packed_bytes);
      const int64_t columns = 4 / bytes, steps = (c.k + columns - 1) / columns;
      for (int64_t row = 0; row < c.n; ++row) {
        for (int64_t i = 0; i < c.k * bytes; ++i) {
          const int64_t line = row / 16 * steps + i / 4;
          expected[static_cast<size_t>(line * 64 + row % 16 * 4 + i % 4)] =
              source[static_cast<size_t>(row * c.k * bytes + i)];
        }
      }
      for (const KernelTable& table : SupportedTables()) {
        FencedArray<unsigned char> packed(packed_bytes);
        for (int64_t row = 0; row < c.n; row += 32) {  // in panels of 32 rows
          table.pack_rows(source.data() + row * c.k * bytes, bytes, row,
                          std::min<int64_t>(32, c.n - row), c.k, packed.data());
        }
        EXPECT_EQ(std::memcmp(packed.data(), expected.data(), packed_bytes), 0)
            << table.isa << " " << Name(element) << " n " << c.n << " k " << c.k;
      }
    }
  }
}

TEST(PackRows, UnpackRowReadsBackWhatWasPacked) {
  for (const DType element : {DType::kF32, DType::kBf16, DType::kF16}) {
    constexpr int64_t kRows = 21, kColumns = 37;
    const std::vector<float> values = Gaussian(kRows * kColumns, 91);
    const std::vector<char> source = Stored(values, element);
    std::vector<char> packed(
        static_cast<size_t>(PackedBytes(WeightFormat::Plain(element), kRows, kColumns)));
    HostKernels().pack_rows(source.data(), ByteSize(element), 0, kRows, kColumns, packed.data());
    for (int64_t row = 0; row < kRows; ++row) {
      std::vector<float> expected(kColumns), got(kColumns);
      ConvertToF32(element, source.data() + row * kColumns * ByteSize(element), kColumns,
                   expected.data());
      UnpackRow(WeightFormat::Plain(element), packed.data(), nullptr, row, kColumns, got.data());
      EXPECT_EQ(got, expected) << Name(element) << " row " << row;
    }
  }
  const int8_t codes[] = {-128, 127, 3, 0, -1};
  const float scale = 0.25f;
  std::vector<char> packed(static_cast<size_t>(PackedBytes(WeightFormat::S8Channel(), 1, 5)));
  HostKernels().pack_rows(codes, 1, 0, 1, 5, packed.data());
  std::vector<float> got(5);
  UnpackRow(WeightFormat::S8Channel(), packed.data(), &scale, 0, 5, got.data());
  EXPECT_EQ(got, (std::vector<float>{-32.0f, 31.75f, 0.75f, 0.0f, -0.25f}));
}

}  // namespace
}  // namespace octavo
