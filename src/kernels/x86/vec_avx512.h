// Sixteen floats in a zmm register. Included by files compiled for AVX-512 F, BW, VL and DQ; the
// functions have internal linkage so that none of them can stand in for a copy compiled for another
// instruction set.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace octavo {
namespace {

struct VecAvx512 {
  using F = __m512;
  static constexpr int kLanes = 16;
  static constexpr int kAttentionUnits = 12;  // 24 accumulators, 2 of B: 26 of 32 registers

  static F Zero() { return _mm512_setzero_ps(); }
  static F Set(float value) { return _mm512_set1_ps(value); }
  static F Load(const float* p) { return _mm512_loadu_ps(p); }
  static void Store(float* p, F v) { _mm512_storeu_ps(p, v); }
  static F LoadPart(const float* p, int64_t count) {
    return _mm512_maskz_loadu_ps(PartMask(count), p);
  }
  static void StorePart(float* p, F v, int64_t count) {
    _mm512_mask_storeu_ps(p, PartMask(count), v);
  }

  static F Add(F a, F b) { return _mm512_add_ps(a, b); }
  static F Sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static F Mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F Div(F a, F b) { return _mm512_div_ps(a, b); }
  static F MulAdd(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static F NegMulAdd(F a, F b, F c) { return _mm512_fnmadd_ps(a, b, c); }
  // A NaN in `b` is the result.
  static F Max(F a, F b) { return _mm512_max_ps(a, b); }
  static F Min(F a, F b) { return _mm512_min_ps(a, b); }
  static F Abs(F a) { return _mm512_andnot_ps(Set(-0.0f), a); }
  static F CopySign(F magnitude, F sign) {
    return _mm512_or_ps(Abs(magnitude), _mm512_and_ps(Set(-0.0f), sign));
  }
  static F IfLess(F a, F b, F yes, F no) {
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), no, yes);
  }
  static F RoundEven(F a) {
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  // value * 2^exponent for an integral exponent.
  static F Ldexp(F value, F exponent) { return _mm512_scalef_ps(value, exponent); }
  static float Sum(F a) {
    const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 v = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    v = _mm_add_ps(v, _mm_movehl_ps(v, v));
    return _mm_cvtss_f32(_mm_add_ss(v, _mm_movehdup_ps(v)));
  }
  static float Largest(F a) {
    const __m256 half = _mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 v = _mm_max_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    v = _mm_max_ps(v, _mm_movehl_ps(v, v));
    return _mm_cvtss_f32(_mm_max_ss(v, _mm_movehdup_ps(v)));
  }

  static F LoadBf16(const uint16_t* p) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(Load16(p)), 16));
  }
  static F LoadF16(const uint16_t* p) { return _mm512_cvtph_ps(Load16(p)); }
  static void StoreBf16(uint16_t* p, F v) {
    const __m512i bits = _mm512_castps_si512(v);
    const __m512i upper = _mm512_srli_epi32(bits, 16);
    const __m512i odd = _mm512_and_si512(upper, _mm512_set1_epi32(1));
    const __m512i bias = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff));
    const __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(bits, bias), 16);
    const __m512i quiet = _mm512_or_si512(upper, _mm512_set1_epi32(0x40));
    const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    Store16(p, _mm512_cvtepi32_epi16(_mm512_mask_blend_epi32(nan, rounded, quiet)));
  }
  static void StoreF16(uint16_t* p, F v) {
    Store16(p, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }

 private:
  static __mmask16 PartMask(int64_t count) {
    return count >= kLanes ? __mmask16{0xffff} : static_cast<__mmask16>((1u << count) - 1u);
  }
  static __m256i Load16(const uint16_t* p) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  }
  static void Store16(uint16_t* p, __m256i v) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), v);
  }
};

}  // namespace
}  // namespace octavo
