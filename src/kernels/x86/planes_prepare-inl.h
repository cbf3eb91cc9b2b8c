// Activations as integers with a scale per row, cut into u8 planes: the operand of vpdpbusd. A
// value is x = scale * q, and q + (a constant that makes it positive) is written in base 256, most
// significant digit first. Each digit then stands for (digit - 128), so q = sum_i 256^(P-1-i) *
// (digit_i - 128).
//
// Two planes (16 bits) unless the row's largest values make that grid coarser for its small values
// than bfloat16 would be; then three, and four where even 24 bits are too few.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace octavo {
namespace {

inline constexpr int kMinPlanes = 2;
inline constexpr int kMaxPlanes = 4;

// The prepared form of a row: this header, then digits 0 and 1 as [steps][2][4 columns], then
// digits 2 and 3 alike, where the row has them.
struct alignas(64) PlaneRow {
  float scale;     // NaN for a row that holds a NaN or infinity
  int32_t planes;  // 2, 3 or 4
};

constexpr int64_t PaddedColumns(int64_t k) { return (k + 15) / 16 * 16; }
constexpr int64_t PlanePairBytes(int64_t k) { return 2 * PaddedColumns(k); }

// An odd number of cache lines, so that the rows of a tile do not compete for the same sets of L1.
constexpr int64_t PlaneRowBytes(int64_t k) {
  const int64_t lines = (int64_t{sizeof(PlaneRow)} + kMaxPlanes / 2 * PlanePairBytes(k) + 63) / 64;
  return (lines | 1) * 64;
}

// The largest |q| with this many planes, a little below what the digits hold: rounding must not
// pass it.
constexpr float PlaneRange(int planes) {
  return planes == 2 ? 32639.0f : planes == 3 ? 8355700.0f : 2139000000.0f;
}

inline __mmask16 TailMask(int64_t count) {
  return count >= 16 ? __mmask16{0xffff} : static_cast<__mmask16>((1u << count) - 1u);
}

// The largest magnitude of x[0:k), as bits: NaN and infinity come out on top.
inline uint32_t LargestMagnitudeBits(const float* x, int64_t k) {
  const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
  __m512i largest[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
  int64_t column = 0;
  for (; column + 32 <= k; column += 32) {
    for (int i = 0; i < 2; ++i) {
      const __m512i bits = _mm512_loadu_si512(x + column + 16 * i);
      largest[i] = _mm512_max_epu32(largest[i], _mm512_and_si512(bits, magnitude));
    }
  }
  for (; column < k; column += 16) {
    const __m512i bits = _mm512_maskz_loadu_epi32(TailMask(k - column), x + column);
    largest[0] = _mm512_max_epu32(largest[0], _mm512_and_si512(bits, magnitude));
  }
  return _mm512_reduce_max_epu32(_mm512_max_epu32(largest[0], largest[1]));
}

// What the choice of planes looks at: the nonzero values below a quarter of the largest. The larger
// ones fall on a grid finer than bfloat16's in any case, and their size says nothing about the
// others.
struct SmallValues {
  int64_t count = 0;
  float sum = 0.0f;  // of magnitudes

  // Whether a grid of this step leaves them a smaller error than bfloat16. The error's root mean
  // square is 0.29 steps on the grid and about 1.66e-3 of theirs in bfloat16; their mean magnitude
  // is at most their root mean square, so a step of 2^-8 of it (an error of 1.13e-3) is on the safe
  // side.
  bool FineEnough(float step) const { return step * static_cast<float>(count) <= 0x1p-8f * sum; }
};

// Quantizes x[0:k) and writes the digits.
template <int P>
inline SmallValues WriteDigits(const float* x, int64_t k, float largest, char* digits) {
  const float range = PlaneRange(P);
  const __m512 inverse = _mm512_set1_ps(range / largest);
  const __m512 quarter = _mm512_set1_ps(0.25f * largest);
  constexpr uint32_t kCentre = P == 2 ? 0x8080u : P == 3 ? 0x808080u : 0x80808080u;
  const __m512i centre = _mm512_set1_epi32(static_cast<int>(kCentre));
  __m512 sum = _mm512_setzero_ps();
  int64_t count = 0;
  for (int64_t column = 0; column < k; column += 16) {
    const __m512 value = _mm512_maskz_loadu_ps(TailMask(k - column), x + column);
    const __m512 magnitude = _mm512_abs_ps(value);
    const __mmask16 small =
        _mm512_mask_cmp_ps_mask(_mm512_cmp_ps_mask(magnitude, quarter, _CMP_LT_OQ), magnitude,
                                _mm512_setzero_ps(), _CMP_GT_OQ);
    sum = _mm512_mask_add_ps(sum, small, sum, magnitude);
    count += __builtin_popcount(small);
    const __m512i q = _mm512_cvtps_epi32(_mm512_mul_ps(value, inverse));
    const __m512i raised = _mm512_slli_epi32(_mm512_add_epi32(q, centre), 8 * (4 - P));
#pragma GCC unroll 2
    for (int pair = 0; pair < (P + 1) / 2; ++pair) {
      const __m128i upper = _mm512_cvtepi32_epi8(_mm512_srli_epi32(raised, 24 - 16 * pair));
      const __m128i lower = _mm512_cvtepi32_epi8(_mm512_srli_epi32(raised, 16 - 16 * pair));
      __m128i* to = reinterpret_cast<__m128i*>(digits + pair * PlanePairBytes(k) + 2 * column);
      _mm_storeu_si128(to, _mm_unpacklo_epi32(upper, lower));
      _mm_storeu_si128(to + 1, _mm_unpackhi_epi32(upper, lower));
    }
  }
  return {count, _mm512_reduce_add_ps(sum)};
}

inline void PrepareRow(const float* x, int64_t k, char* prepared) {
  // Smaller rows keep the grid of this one, at worst steps of 5e-38: its inverse must be a number.
  constexpr float kSmallest = 1e-28f;
  PlaneRow header = {0.0f, kMinPlanes};
  char* digits = prepared + sizeof(PlaneRow);
  const uint32_t bits = LargestMagnitudeBits(x, k);
  if (bits >= 0x7f800000u) {
    header.scale = __builtin_nanf("");
    std::memset(digits, 0x80, static_cast<size_t>(PlanePairBytes(k)));
  } else {
    float largest;
    std::memcpy(&largest, &bits, sizeof largest);
    largest = largest > kSmallest ? largest : kSmallest;
    const SmallValues small = WriteDigits<2>(x, k, largest, digits);
    header.scale = largest / PlaneRange(2);
    if (!small.FineEnough(header.scale)) {
      header.planes = small.FineEnough(largest / PlaneRange(3)) ? 3 : 4;
      header.scale = largest / PlaneRange(header.planes);
      if (header.planes == 3) {
        WriteDigits<3>(x, k, largest, digits);
      } else {
        WriteDigits<4>(x, k, largest, digits);
      }
    }
  }
  std::memcpy(prepared, &header, sizeof header);
}

inline int64_t PreparedBytes(int64_t m, int64_t k) { return m * PlaneRowBytes(k); }

inline void PrepareRows(const float* x, int64_t x_stride, int64_t /*m*/, int64_t k, int64_t m_begin,
                        int64_t m_end, void* prepared) {
  for (int64_t row = m_begin; row < m_end; ++row) {
    PrepareRow(x + row * x_stride, k, static_cast<char*>(prepared) + row * PlaneRowBytes(k));
  }
}

}  // namespace
}  // namespace octavo
