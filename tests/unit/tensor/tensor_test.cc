#include <gtest/gtest.h>
#include <octavo/error.h>

#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "base/float16.h"
#include "tensor/buffer.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"
#include "tensor/weight_format.h"

namespace octavo {
namespace {

TEST(DTypeTest, NamesOfSafetensorsRoundTrip) {
  for (const char* name : {"BF16", "F16", "F32", "F64", "F8_E4M3", "F8_E5M2", "I8", "I16", "I32",
                           "I64", "U8", "U16", "U32", "U64", "BOOL"}) {
    const auto dtype = DTypeFromSafetensorsName(name);
    ASSERT_TRUE(dtype.has_value()) << name;
    EXPECT_STREQ(SafetensorsName(*dtype), name);
  }
  EXPECT_FALSE(DTypeFromSafetensorsName("X9").has_value());
}

TEST(DTypeTest, ConvertsUnalignedValues) {
  const std::vector<double> values = {0.0, -1.5, 3.25, 65504.0};
  std::vector<unsigned char> bytes(1 + values.size() * sizeof(double));
  std::vector<float> converted(values.size());
  const auto count = static_cast<int64_t>(values.size());

  std::memcpy(bytes.data() + 1, values.data(), values.size() * sizeof(double));
  ConvertToF32(DType::kF64, bytes.data() + 1, count, converted.data());
  EXPECT_EQ(converted, std::vector<float>(values.begin(), values.end()));

  for (size_t i = 0; i < values.size(); ++i) {
    const uint16_t half = F32ToF16(static_cast<float>(values[i]));
    std::memcpy(bytes.data() + 1 + 2 * i, &half, 2);
  }
  ConvertToF32(DType::kF16, bytes.data() + 1, count, converted.data());
  EXPECT_EQ(converted, std::vector<float>(values.begin(), values.end()));
  EXPECT_THROW(ConvertToF32(DType::kS8, bytes.data(), 1, converted.data()), Error);
}

TEST(ShapeTest, CountsElementsAndNoticesOverflow) {
  EXPECT_EQ(ElementCount({}), 1);
  EXPECT_EQ(ElementCount({3, 4}), 12);
  EXPECT_EQ(ElementCount({3, 0, std::numeric_limits<int64_t>::max(), 4}), 0);
  EXPECT_EQ(ElementCount({-1, 4}), std::nullopt);
  EXPECT_EQ(ElementCount({int64_t{1} << 40, int64_t{1} << 40}), std::nullopt);
  EXPECT_EQ(ToString(Shape{64, 112}), "[64, 112]");
}

TEST(BufferTest, IsZeroAlignedAndMovable) {
  for (const size_t bytes : {size_t{1}, size_t{100}, size_t{3} << 20}) {
    Buffer buffer(bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 64, 0u);
    for (size_t i = 0; i < bytes; i += 4096) EXPECT_EQ(buffer.as<char>()[i], 0);
    buffer.as<char>()[bytes - 1] = 7;
    const Buffer moved = std::move(buffer);
    EXPECT_EQ(moved.as<char>()[bytes - 1], 7);
  }
}

TEST(BufferTest, SaysHowMuchWasAskedForWhenMemoryIsOut) {
  try {
    Buffer buffer(size_t{1} << 60);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kResourceExhausted);
    EXPECT_NE(std::string(error.what()).find(std::to_string(size_t{1} << 60)), std::string::npos);
  }
}

TEST(WeightFormatTest, CountsStoredBytes) {
  EXPECT_EQ(StoredBytes(WeightFormat::Plain(DType::kBf16), 10, 7), 140);
  EXPECT_EQ(StoredBytes(WeightFormat::S8Channel(), 10, 7), 10 * 7 + 10 * 4);
  const WeightFormat block{.element = DType::kS8, .granularity = Granularity::kBlock, .block = 4};
  EXPECT_EQ(StoredBytes(block, 10, 7), 10 * 7 + 10 * 2 * 4);
}

}  // namespace
}  // namespace octavo
