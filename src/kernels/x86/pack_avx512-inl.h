// Codes and transpositions with AVX-512, for quantize_rows_s8 and pack_rows.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace octavo {
namespace {

struct CodesAvx512 {
  // Rounds half to even and saturates.
  static void Store(int8_t* q, __m512 value) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(q),
                     _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(value)));
  }
};

struct TransposeAvx512 {
  static constexpr int64_t kBytes = 16;  // of each of 16 rows

  // 16 rows of 4 units to 4 lines of 16 units. Lane l of rows[i] is row 4 l + i, so that a 4 x 4
  // transposition within the lanes is all there is to do.
  static void Transpose(const char* from, int64_t row_bytes, char* to) {
    __m512i rows[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const char* row = from + i * row_bytes;
      __m512i lanes = _mm512_castsi128_si512(Load(row));
      lanes = _mm512_inserti32x4(lanes, Load(row + 4 * row_bytes), 1);
      lanes = _mm512_inserti32x4(lanes, Load(row + 8 * row_bytes), 2);
      rows[i] = _mm512_inserti32x4(lanes, Load(row + 12 * row_bytes), 3);
    }
    const __m512i low01 = _mm512_unpacklo_epi32(rows[0], rows[1]);
    const __m512i high01 = _mm512_unpackhi_epi32(rows[0], rows[1]);
    const __m512i low23 = _mm512_unpacklo_epi32(rows[2], rows[3]);
    const __m512i high23 = _mm512_unpackhi_epi32(rows[2], rows[3]);
    _mm512_storeu_si512(to, _mm512_unpacklo_epi64(low01, low23));
    _mm512_storeu_si512(to + 64, _mm512_unpackhi_epi64(low01, low23));
    _mm512_storeu_si512(to + 128, _mm512_unpacklo_epi64(high01, high23));
    _mm512_storeu_si512(to + 192, _mm512_unpackhi_epi64(high01, high23));
  }

 private:
  static __m128i Load(const char* p) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  }
};

}  // namespace
}  // namespace octavo
