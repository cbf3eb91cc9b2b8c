// Reads packed weights into zmm registers, and the tile shapes that fit AVX-512.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "kernels/kernel_table.h"

namespace octavo {
namespace {

struct WeightsAvx512 {
  // 6 x 4 blocks: 24 sums, 4 weights, 1 activation, of 32 registers.
  static constexpr int kTileRows = 6;
  static constexpr int kTileBlocks = 4;
  // Blocks of a tile of 2 and of 4 rows that converts weights in registers.
  static constexpr int kDirectBlocksOf2 = 4;
  static constexpr int kDirectBlocksOf4 = 3;

  // Converts a step: values[j] holds column j of 16 rows.
  template <LinearFormat format, typename Values>
  static inline __attribute__((always_inline)) void Convert(const char* line, Values& values) {
    const __m512i bits = _mm512_loadu_si512(line);
    if constexpr (format == LinearFormat::kF32) {
      values[0] = _mm512_castsi512_ps(bits);
    } else if constexpr (format == LinearFormat::kBf16) {
      values[0] = _mm512_castsi512_ps(_mm512_slli_epi32(bits, 16));
      values[1] = _mm512_castsi512_ps(
          _mm512_and_si512(bits, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
    } else if constexpr (format == LinearFormat::kF16) {
      // The even halfwords of a 128-bit lane to its low 8 bytes, then all of them to the low half.
      const __m512i even_first = _mm512_broadcast_i32x4(
          _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15));
      const __m512i low_halves = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
      const __m512i sorted =
          _mm512_permutexvar_epi64(low_halves, _mm512_shuffle_epi8(bits, even_first));
      values[0] = _mm512_cvtph_ps(_mm512_castsi512_si256(sorted));
      values[1] = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(sorted, 1));
    } else {
      values[0] = _mm512_cvtepi32_ps(_mm512_srai_epi32(_mm512_slli_epi32(bits, 24), 24));
      values[1] = _mm512_cvtepi32_ps(_mm512_srai_epi32(_mm512_slli_epi32(bits, 16), 24));
      values[2] = _mm512_cvtepi32_ps(_mm512_srai_epi32(_mm512_slli_epi32(bits, 8), 24));
      values[3] = _mm512_cvtepi32_ps(_mm512_srai_epi32(bits, 24));
    }
  }
};

}  // namespace
}  // namespace octavo
