// One float as a "vector" of one lane, in plain C++: what the generic kernels are written over on a
// machine without a vector path, and the oracle of the paths that have one. Included by scalar.cc
// only.
#pragma once

#include <cstdint>

namespace octavo {
namespace {

struct VecScalar {
  using F = float;
  static constexpr int kLanes = 1;
  static constexpr int kAttentionUnits = 4;  // query rows that attention computes at once

  static F Zero() { return 0.0f; }
  static F Set(float value) { return value; }
  static F Load(const float* p) { return *p; }
  static void Store(float* p, F v) { *p = v; }
  static F LoadPart(const float* p, int64_t count) { return count > 0 ? *p : 0.0f; }
  static void StorePart(float* p, F v, int64_t count) {
    if (count > 0) *p = v;
  }

  static F Add(F a, F b) { return a + b; }
  static F Sub(F a, F b) { return a - b; }
  static F Mul(F a, F b) { return a * b; }
  static F Div(F a, F b) { return a / b; }
  static F MulAdd(F a, F b, F c) { return a * b + c; }
  static F NegMulAdd(F a, F b, F c) { return c - a * b; }
  // A NaN in `b` is the result, as with the x86 instructions.
  static F Max(F a, F b) { return a > b ? a : b; }
  static F Min(F a, F b) { return a < b ? a : b; }
  static F Abs(F a) { return __builtin_fabsf(a); }
  static F CopySign(F magnitude, F sign) { return __builtin_copysignf(magnitude, sign); }
  static F IfLess(F a, F b, F yes, F no) { return a < b ? yes : no; }
  static F RoundEven(F a) {
    // Adding and taking away 1.5 * 2^23 leaves no fraction bits; right for |a| < 2^22.
    return (a + 12582912.0f) - 12582912.0f;
  }
  // value * 2^exponent for an integral exponent in [-252, 254].
  static F Ldexp(F value, F exponent) {
    if (!(exponent == exponent)) return exponent;
    const int whole = static_cast<int>(exponent);
    const int half = whole >> 1;
    return value * PowerOfTwo(half) * PowerOfTwo(whole - half);
  }
  static float Sum(F a) { return a; }
  static float Largest(F a) { return a; }

  static F LoadBf16(const uint16_t* p) { return FromBits(uint32_t{*p} << 16); }
  static F LoadF16(const uint16_t* p) {
    const uint32_t sign = uint32_t{*p & 0x8000u} << 16;
    const uint32_t magnitude = *p & 0x7fffu;
    if (magnitude >= 0x7c00u) return FromBits(sign | 0x7f800000u | (magnitude << 13));
    // 2^112 moves the exponent bias from 15 to 127 and normalizes subnormals on the way.
    return FromBits(ToBits(FromBits(magnitude << 13) * 0x1p112f) | sign);
  }
  static void StoreBf16(uint16_t* p, F v) {
    const uint32_t bits = ToBits(v);
    const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
    *p = static_cast<uint16_t>(nan ? (bits >> 16) | 0x40u
                                   : (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
  }
  static void StoreF16(uint16_t* p, F v) {
    const uint32_t bits = ToBits(v);
    const uint32_t sign = (bits >> 16) & 0x8000u;
    const uint32_t magnitude = bits & 0x7fffffffu;
    uint32_t half = 0;
    if (magnitude > 0x7f800000u) {
      half = 0x7e00u;
    } else if (magnitude >= 0x477ff000u) {  // 65520 and more round to infinity
      half = 0x7c00u;
    } else if (magnitude < 0x38800000u) {
      // Subnormal: adding 0.5 aligns the mantissa so that the addition itself rounds to even.
      half = ToBits(FromBits(magnitude) + 0.5f) - 0x3f000000u;
    } else {
      half = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
    }
    *p = static_cast<uint16_t>(sign | half);
  }

 private:
  static float FromBits(uint32_t bits) {
    float value;
    __builtin_memcpy(&value, &bits, sizeof value);
    return value;
  }
  static uint32_t ToBits(float value) {
    uint32_t bits;
    __builtin_memcpy(&bits, &value, sizeof bits);
    return bits;
  }
  static float PowerOfTwo(int exponent) {  // in [-126, 127]
    return FromBits(static_cast<uint32_t>(exponent + 127) << 23);
  }
};

}  // namespace
}  // namespace octavo
