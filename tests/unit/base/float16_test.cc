#include "base/float16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace octavo {
namespace {

// The value of IEEE half-precision bits, from the definition.
double F16Value(uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const int fraction = bits & 1023;
  const double sign = (bits & 0x8000) ? -1.0 : 1.0;
  if (exponent == 31) return fraction != 0 ? std::nan("") : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  return sign * std::ldexp(1024 + fraction, exponent - 25);
}

TEST(Float16Test, EveryHalfConvertsToItsValueAndBack) {
  for (uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const float value = F16ToF32(static_cast<uint16_t>(bits));
    const double expected = F16Value(static_cast<uint16_t>(bits));
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(value));
      EXPECT_TRUE(std::isnan(F16ToF32(F32ToF16(value))));
      continue;
    }
    ASSERT_EQ(static_cast<double>(value), expected) << bits;
    ASSERT_EQ(F32ToF16(value), bits);
  }
}

TEST(Float16Test, HalfRoundsToNearestEven) {
  for (uint32_t bits = 0; bits < 0x7bff; ++bits) {
    const auto low = static_cast<uint16_t>(bits);
    const auto high = static_cast<uint16_t>(bits + 1);
    const auto middle = static_cast<float>((F16Value(low) + F16Value(high)) / 2);  // exact
    const uint16_t even = (low & 1) == 0 ? low : high;
    ASSERT_EQ(F32ToF16(middle), even);
    ASSERT_EQ(F32ToF16(std::nextafter(middle, 0.0f)), low);
    ASSERT_EQ(F32ToF16(std::nextafter(middle, INFINITY)), high);
  }
  EXPECT_EQ(F32ToF16(65519.0f), 0x7bff);
  EXPECT_EQ(F32ToF16(65520.0f), 0x7c00);  // half-way to the next would-be number: infinity
  EXPECT_EQ(F32ToF16(-1e30f), 0xfc00);
  EXPECT_EQ(F32ToF16(1e-30f), 0);
}

TEST(Float16Test, Bf16RoundsToNearestEvenAndKeepsNan) {
  for (uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const float value = Bf16ToF32(static_cast<uint16_t>(bits));
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(Bf16ToF32(F32ToBf16(value))));
    } else {
      ASSERT_EQ(F32ToBf16(value), bits);
    }
  }
  EXPECT_EQ(F32ToBf16(std::bit_cast<float>(0x3f808000u)), 0x3f80);  // tie, down to even
  EXPECT_EQ(F32ToBf16(std::bit_cast<float>(0x3f818000u)), 0x3f82);  // tie, up to even
  EXPECT_EQ(F32ToBf16(std::bit_cast<float>(0x3f808001u)), 0x3f81);
  EXPECT_EQ(F32ToBf16(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_TRUE(std::isnan(Bf16ToF32(F32ToBf16(std::bit_cast<float>(0x7f800001u)))));
}

}  // namespace
}  // namespace octavo
