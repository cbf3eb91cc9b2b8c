// Linear layers of s8 weights with activations in u8 planes (planes_prepare-inl.h), by vpdpbusd.
// Sums of digits times weights are exact integers, so the tile that a row falls into cannot change
// its result.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "kernels/kernel_table.h"
#include "kernels/x86/planes_prepare-inl.h"

namespace octavo {
namespace {

// The sum over k of (digit - 128) * weight fits an int32 up to this k: 128 * 128 * k < 2^31. The
// terms are digit * weight, whose sum may wrap around; taking 128 * (sum of weights) off wraps it
// back.
inline constexpr int64_t kMaxColumnsInInt32 = 131071;

template <int B>
struct Blocks {
  const char* w[B];
  int64_t first[B];  // first column of y of each
};

// total = scale of the row * scale of the column * q.w, with the bias; columns [first, first + 16).
inline void StoreColumns(const LinearArgs& args, float* y, int64_t first, int64_t n_end,
                         float row_scale, __m512 total) {
  total = _mm512_mul_ps(total, _mm512_loadu_ps(args.scales + first));
  total = _mm512_mul_ps(total, _mm512_set1_ps(row_scale));
  if (args.bias != nullptr) total = _mm512_add_ps(total, _mm512_loadu_ps(args.bias + first));
  if (first + 16 <= n_end) {
    _mm512_storeu_ps(y + first, total);
  } else {
    _mm512_mask_storeu_ps(y + first, TailMask(n_end - first), total);
  }
}

// sum += u * w over four columns. By hand: g++ 12 gives every intrinsic of this kind two copies of
// `sum`, which halves the speed of a tile.
inline __attribute__((always_inline)) void MultiplyAdd(__m512i& sum, __m512i u, __m512i w) {
  __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(u), "v"(w));
}

// R rows of P planes by B blocks.
template <int R, int P, int B>
__attribute__((noinline)) void PlaneTile(const LinearArgs& args, const int64_t* rows,
                                         const Blocks<B>& blocks, int64_t n_end) {
  const int64_t steps = (args.k + 3) / 4;
  const int64_t row_bytes = PlaneRowBytes(args.k);
  const int64_t pair_bytes = PlanePairBytes(args.k);
  const char* digits[R];
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
    digits[r] = static_cast<const char*>(args.x) + rows[r] * row_bytes + sizeof(PlaneRow);
  }
  __m512i sums[R][P][B];
#pragma GCC unroll 32
  for (int i = 0; i < R * P * B; ++i) {
    sums[i / (P * B)][i / B % P][i % B] = _mm512_setzero_si512();
  }
  for (int64_t step = 0; step < steps; ++step) {
    __m512i w[B];
#pragma GCC unroll 4
    for (int b = 0; b < B; ++b) {
      w[b] = _mm512_loadu_si512(blocks.w[b] + step * 64);
    }
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
      for (int p = 0; p < P; ++p) {
        int four;  // columns of one plane
        __builtin_memcpy(&four, digits[r] + p / 2 * pair_bytes + step * 8 + p % 2 * 4, 4);
        const __m512i u = _mm512_set1_epi32(four);
#pragma GCC unroll 4
        for (int b = 0; b < B; ++b) MultiplyAdd(sums[r][p][b], u, w[b]);
      }
    }
  }
  // Unrolled, so that no index into `sums` is a variable: else the compiler keeps it in memory.
#pragma GCC unroll 4
  for (int b = 0; b < B; ++b) {
    const __m512i centre =
        _mm512_slli_epi32(_mm512_loadu_si512(args.row_sums + blocks.first[b]), 7);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      __m512 total = _mm512_setzero_ps();
#pragma GCC unroll 4
      for (int p = 0; p < P; ++p) {
        const __m512 digit_sum = _mm512_cvtepi32_ps(_mm512_sub_epi32(sums[r][p][b], centre));
        total = _mm512_fmadd_ps(total, _mm512_set1_ps(256.0f), digit_sum);
      }
      float scale;
      __builtin_memcpy(&scale, digits[r] - sizeof(PlaneRow), sizeof scale);
      StoreColumns(args, args.y + rows[r] * args.y_stride, blocks.first[b], n_end, scale, total);
    }
  }
}

// One row by one block where k is too large for int32 sums: chunks that fit, added in float64,
// which holds all of these integers exactly.
inline void LongTile(const LinearArgs& args, int64_t row, int64_t first, int64_t n_end) {
  constexpr int64_t kChunkSteps = 16384;  // 255 * 128 * 4 * 16384 < 2^31
  const int64_t steps = (args.k + 3) / 4;
  const char* w = static_cast<const char*>(args.weights) + first / kPackedRows * steps * 64;
  const char* prepared = static_cast<const char*>(args.x) + row * PlaneRowBytes(args.k);
  PlaneRow header;
  __builtin_memcpy(&header, prepared, sizeof header);
  const __m512i row_sums = _mm512_loadu_si512(args.row_sums + first);
  __m512d totals[2] = {_mm512_setzero_pd(), _mm512_setzero_pd()};  // columns 0..7, 8..15
  for (int p = 0; p < header.planes; ++p) {
    const char* digits = prepared + sizeof header + p / 2 * PlanePairBytes(args.k) + p % 2 * 4;
    __m512d sums[2];
    for (int half = 0; half < 2; ++half) {
      const __m256i part =
          half == 0 ? _mm512_castsi512_si256(row_sums) : _mm512_extracti64x4_epi64(row_sums, 1);
      sums[half] = _mm512_mul_pd(_mm512_cvtepi32_pd(part), _mm512_set1_pd(-128.0));
    }
    for (int64_t begin = 0; begin < steps; begin += kChunkSteps) {
      const int64_t end = begin + kChunkSteps < steps ? begin + kChunkSteps : steps;
      __m512i sum = _mm512_setzero_si512();
      for (int64_t step = begin; step < end; ++step) {
        int four;
        __builtin_memcpy(&four, digits + step * 8, 4);
        sum = _mm512_dpbusd_epi32(sum, _mm512_set1_epi32(four), _mm512_loadu_si512(w + step * 64));
      }
      sums[0] = _mm512_add_pd(sums[0], _mm512_cvtepi32_pd(_mm512_castsi512_si256(sum)));
      sums[1] = _mm512_add_pd(sums[1], _mm512_cvtepi32_pd(_mm512_extracti64x4_epi64(sum, 1)));
    }
    for (int half = 0; half < 2; ++half) {
      totals[half] = _mm512_fmadd_pd(totals[half], _mm512_set1_pd(256.0), sums[half]);
    }
  }
  const __m512 total = _mm512_insertf32x8(_mm512_castps256_ps512(_mm512_cvtpd_ps(totals[0])),
                                          _mm512_cvtpd_ps(totals[1]), 1);
  StoreColumns(args, args.y + row * args.y_stride, first, n_end, header.scale, total);
}

template <int R, int P, int B>
void PlaneTileOf(int rows_in_tile, const LinearArgs& args, const int64_t* rows,
                 const Blocks<B>& blocks, int64_t n_end) {
  if constexpr (R > 1) {
    if (rows_in_tile < R) {
      return PlaneTileOf<R - 1, P, B>(rows_in_tile, args, rows, blocks, n_end);
    }
  }
  PlaneTile<R, P, B>(args, rows, blocks, n_end);
}

// Rows of one tile per number of planes that wait for company.
template <int B>
class RowCollector {
 public:
  RowCollector(const LinearArgs& args, const Blocks<B>& blocks, int64_t n_end)
      : args_(args), blocks_(blocks), n_end_(n_end) {}

  void Add(int64_t row) {
    PlaneRow header;
    __builtin_memcpy(&header, static_cast<const char*>(args_.x) + row * PlaneRowBytes(args_.k),
                     sizeof header);
    if (header.planes == 2) {
      Take<2>(row);
    } else if (header.planes == 3) {
      Take<3>(row);
    } else {
      Take<4>(row);
    }
  }
  void Flush() {
    FlushOf<2>();
    FlushOf<3>();
    FlushOf<4>();
  }

 private:
  // Rows per tile: what keeps R * P * B sums, B weights and a digit in 32 registers.
  template <int P>
  static constexpr int kRows = 26 / (P * B) < 4 ? 26 / (P * B) : 4;

  template <int P>
  void Take(int64_t row) {
    rows_[P - kMinPlanes][waiting_[P - kMinPlanes]++] = row;
    if (waiting_[P - kMinPlanes] == kRows<P>) FlushOf<P>();
  }
  template <int P>
  void FlushOf() {
    int& waiting = waiting_[P - kMinPlanes];
    if (waiting > 0) {
      PlaneTileOf<kRows<P>, P, B>(waiting, args_, rows_[P - kMinPlanes], blocks_, n_end_);
    }
    waiting = 0;
  }

  const LinearArgs& args_;
  const Blocks<B>& blocks_;
  int64_t n_end_;
  int64_t rows_[kMaxPlanes - kMinPlanes + 1][4];
  int waiting_[kMaxPlanes - kMinPlanes + 1] = {};
};

// B blocks at a time and those far apart: as many streams of memory.
template <int B>
void PlanePanels(const LinearArgs& args, int64_t m_begin, int64_t m_end, int64_t n_begin,
                 int64_t n_end) {
  const int64_t block_bytes = (args.k + 3) / 4 * 64;
  const int64_t count = (n_end - n_begin + kPackedRows - 1) / kPackedRows;
  const int64_t apart = count / B;
  for (int64_t i = 0; i < apart; ++i) {
    Blocks<B> blocks;
    for (int b = 0; b < B; ++b) {
      blocks.first[b] = n_begin + (i + b * apart) * kPackedRows;
      blocks.w[b] =
          static_cast<const char*>(args.weights) + blocks.first[b] / kPackedRows * block_bytes;
    }
    RowCollector<B> collector(args, blocks, n_end);
    for (int64_t row = m_begin; row < m_end; ++row) collector.Add(row);
    collector.Flush();
  }
  if constexpr (B > 1) {
    const int64_t next = n_begin + apart * B * kPackedRows;
    if (next < n_end) PlanePanels<B - 1>(args, m_begin, m_end, next, n_end);
  }
}

inline void RunPlanes(const LinearArgs& args, int64_t m_begin, int64_t m_end, int64_t n_begin,
                      int64_t n_end) {
  if (m_begin >= m_end || n_begin >= n_end) return;
  if (args.k > kMaxColumnsInInt32) {
    for (int64_t first = n_begin; first < n_end; first += kPackedRows) {
      for (int64_t row = m_begin; row < m_end; ++row) LongTile(args, row, first, n_end);
    }
    return;
  }
  // Measured on Zen 4, share of reading speed with one thread: 1 row 0.99 (0.86 with 4 blocks), 2
  // rows 0.86, 3 rows 0.81 (0.63 with 2 blocks); prefetching by hand costs a tenth. More rows than
  // that are limited by arithmetic, and 4 x 3 tiles load least.
  switch (m_end - m_begin) {
    case 1:
    case 2:
      return PlanePanels<2>(args, m_begin, m_end, n_begin, n_end);
    case 3:
      return PlanePanels<4>(args, m_begin, m_end, n_begin, n_end);
    default:
      return PlanePanels<3>(args, m_begin, m_end, n_begin, n_end);
  }
}

}  // namespace
}  // namespace octavo
