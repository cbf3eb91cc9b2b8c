// Codes and transpositions with AVX2, for quantize_rows_s8 and pack_rows.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace octavo {
namespace {

struct CodesAvx2 {
  // Rounds half to even and saturates.
  static void Store(int8_t* q, __m256 value) {
    const __m256i whole = _mm256_cvtps_epi32(value);
    const __m128i words =
        _mm_packs_epi32(_mm256_castsi256_si128(whole), _mm256_extracti128_si256(whole, 1));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(q), _mm_packs_epi16(words, words));
  }
};

struct TransposeAvx2 {
  static constexpr int64_t kBytes = 32;  // of each of 16 rows

  // 16 rows of 8 units to 8 lines of 16 units.
  static void Transpose(const char* from, int64_t row_bytes, char* to) {
    Half(from, row_bytes, to);
    Half(from + 8 * row_bytes, row_bytes, to + 32);
  }

 private:
  static __m256i Pair(const char* upper, const char* lower) {
    const __m128i a = _mm_loadu_si128(reinterpret_cast<const __m128i*>(upper));
    const __m128i b = _mm_loadu_si128(reinterpret_cast<const __m128i*>(lower));
    return _mm256_inserti128_si256(_mm256_castsi128_si256(a), b, 1);
  }

  // 8 rows of 8 units. Rows i and i + 4 share a register, so that no unit has to cross lanes later.
  static void Half(const char* from, int64_t row_bytes, char* to) {
#pragma GCC unroll 2
    for (int part = 0; part < 2; ++part) {
      __m256i rows[4];
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        const char* row = from + i * row_bytes + part * 16;
        rows[i] = Pair(row, row + 4 * row_bytes);
      }
      const __m256i low01 = _mm256_unpacklo_epi32(rows[0], rows[1]);
      const __m256i high01 = _mm256_unpackhi_epi32(rows[0], rows[1]);
      const __m256i low23 = _mm256_unpacklo_epi32(rows[2], rows[3]);
      const __m256i high23 = _mm256_unpackhi_epi32(rows[2], rows[3]);
      char* line = to + part * 4 * 64;
      Put(line, _mm256_unpacklo_epi64(low01, low23));
      Put(line + 64, _mm256_unpackhi_epi64(low01, low23));
      Put(line + 128, _mm256_unpacklo_epi64(high01, high23));
      Put(line + 192, _mm256_unpackhi_epi64(high01, high23));
    }
  }
  static void Put(char* to, __m256i value) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), value);
  }
};

}  // namespace
}  // namespace octavo
