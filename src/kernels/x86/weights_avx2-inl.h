// Reads packed weights into ymm registers, and the tile shapes that fit AVX2.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "kernels/kernel_table.h"

namespace octavo {
namespace {

struct WeightsAvx2 {
  // 6 x 1 block: 12 sums, 2 weights, 1 activation, of 16 registers.
  static constexpr int kTileRows = 6;
  static constexpr int kTileBlocks = 1;
  // Blocks of a tile of 2 and of 4 rows that converts weights in registers.
  static constexpr int kDirectBlocksOf2 = 2;
  static constexpr int kDirectBlocksOf4 = 1;

  // Converts half a step: values[j] holds column j of 8 rows.
  template <LinearFormat format, typename Values>
  static inline __attribute__((always_inline)) void Convert(const char* half_line, Values& values) {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(half_line));
    if constexpr (format == LinearFormat::kF32) {
      values[0] = _mm256_castsi256_ps(bits);
    } else if constexpr (format == LinearFormat::kBf16) {
      values[0] = _mm256_castsi256_ps(_mm256_slli_epi32(bits, 16));
      values[1] = _mm256_castsi256_ps(
          _mm256_and_si256(bits, _mm256_set1_epi32(static_cast<int>(0xffff0000u))));
    } else if constexpr (format == LinearFormat::kF16) {
      const __m256i even_first = _mm256_broadcastsi128_si256(
          _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15));
      const __m256i sorted = _mm256_permute4x64_epi64(_mm256_shuffle_epi8(bits, even_first), 0xd8);
      values[0] = _mm256_cvtph_ps(_mm256_castsi256_si128(sorted));
      values[1] = _mm256_cvtph_ps(_mm256_extracti128_si256(sorted, 1));
    } else {
      values[0] = _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(bits, 24), 24));
      values[1] = _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(bits, 16), 24));
      values[2] = _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(bits, 8), 24));
      values[3] = _mm256_cvtepi32_ps(_mm256_srai_epi32(bits, 24));
    }
  }
};

}  // namespace
}  // namespace octavo
