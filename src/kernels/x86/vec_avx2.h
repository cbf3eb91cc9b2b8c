// Eight floats in a ymm register. Included by files compiled for AVX2, FMA and F16C; the functions
// have internal linkage so that none of them can stand in for a copy compiled for another
// instruction set.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace octavo {
namespace {

struct VecAvx2 {
  using F = __m256;
  static constexpr int kLanes = 8;
  static constexpr int kAttentionUnits =
      6;  // 12 accumulators, 2 of B, 1 broadcast: 15 of 16 registers

  static F Zero() { return _mm256_setzero_ps(); }
  static F Set(float value) { return _mm256_set1_ps(value); }
  static F Load(const float* p) { return _mm256_loadu_ps(p); }
  static void Store(float* p, F v) { _mm256_storeu_ps(p, v); }
  static F LoadPart(const float* p, int64_t count) {
    return _mm256_maskload_ps(p, PartMask(count));
  }
  static void StorePart(float* p, F v, int64_t count) {
    _mm256_maskstore_ps(p, PartMask(count), v);
  }

  static F Add(F a, F b) { return _mm256_add_ps(a, b); }
  static F Sub(F a, F b) { return _mm256_sub_ps(a, b); }
  static F Mul(F a, F b) { return _mm256_mul_ps(a, b); }
  static F Div(F a, F b) { return _mm256_div_ps(a, b); }
  static F MulAdd(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  static F NegMulAdd(F a, F b, F c) { return _mm256_fnmadd_ps(a, b, c); }
  // A NaN in `b` is the result.
  static F Max(F a, F b) { return _mm256_max_ps(a, b); }
  static F Min(F a, F b) { return _mm256_min_ps(a, b); }
  static F Abs(F a) { return _mm256_andnot_ps(Set(-0.0f), a); }
  static F CopySign(F magnitude, F sign) {
    return _mm256_or_ps(Abs(magnitude), _mm256_and_ps(Set(-0.0f), sign));
  }
  static F IfLess(F a, F b, F yes, F no) {
    return _mm256_blendv_ps(no, yes, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
  }
  static F RoundEven(F a) {
    return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  // value * 2^exponent for an integral exponent in [-252, 254], in two steps so that each is
  // normal.
  static F Ldexp(F value, F exponent) {
    const __m256i whole = _mm256_cvtps_epi32(exponent);
    const __m256i half = _mm256_srai_epi32(whole, 1);
    return _mm256_mul_ps(_mm256_mul_ps(value, PowerOfTwo(half)),
                         PowerOfTwo(_mm256_sub_epi32(whole, half)));
  }
  static float Sum(F a) {
    __m128 v = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    v = _mm_add_ps(v, _mm_movehl_ps(v, v));
    return _mm_cvtss_f32(_mm_add_ss(v, _mm_movehdup_ps(v)));
  }
  static float Largest(F a) {
    __m128 v = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    v = _mm_max_ps(v, _mm_movehl_ps(v, v));
    return _mm_cvtss_f32(_mm_max_ss(v, _mm_movehdup_ps(v)));
  }

  static F LoadBf16(const uint16_t* p) {
    const __m256i bits = _mm256_cvtepu16_epi32(Load16(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(bits, 16));
  }
  static F LoadF16(const uint16_t* p) { return _mm256_cvtph_ps(Load16(p)); }
  static void StoreBf16(uint16_t* p, F v) {
    const __m256i bits = _mm256_castps_si256(v);
    const __m256i upper = _mm256_srli_epi32(bits, 16);
    const __m256i odd = _mm256_and_si256(upper, _mm256_set1_epi32(1));
    const __m256i bias = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
    const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, bias), 16);
    const __m256i quiet = _mm256_or_si256(upper, _mm256_set1_epi32(0x40));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    const __m256i words = _mm256_blendv_epi8(rounded, quiet, nan);
    Store16(p, _mm_packus_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
  }
  static void StoreF16(uint16_t* p, F v) {
    Store16(p, _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }

 private:
  static __m256i PartMask(int64_t count) {
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), lanes);
  }
  static __m256 PowerOfTwo(__m256i exponent) {
    return _mm256_castsi256_ps(
        _mm256_slli_epi32(_mm256_add_epi32(exponent, _mm256_set1_epi32(127)), 23));
  }
  static __m128i Load16(const uint16_t* p) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  }
  static void Store16(uint16_t* p, __m128i v) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), v);
  }
};

}  // namespace
}  // namespace octavo
