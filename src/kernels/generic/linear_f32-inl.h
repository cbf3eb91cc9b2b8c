// Linear layers with float32 activations over a vector type V (vec_*.h) and its reader of packed
// weights W (x86/weights_*-inl.h).
//
// Every tile shape computes an output in the same way, so a row's result depends on nothing but the
// row: chunks of kChunk columns, each one chain of fused multiply-adds in the order of k, and the
// sum of the chunks in order. Chunks keep the rounding error small and let prefill convert a piece
// of the weights once.
#pragma once

#include <cstdint>

#include "kernels/kernel_table.h"

namespace octavo {
namespace {

inline constexpr int64_t kChunk = 256;     // columns per chunk, a multiple of every step
inline constexpr int64_t kLineBytes = 64;  // one step of a block of packed rows

constexpr int64_t ColumnsPerStep(LinearFormat format) {
  return format == LinearFormat::kS8Channel ? 4 : format == LinearFormat::kF32 ? 1 : 2;
}

template <typename V, typename W>
struct LinearF32 {
  using F = typename V::F;
  static constexpr int64_t kLanes = V::kLanes;
  static constexpr int kParts = kPackedRows / kLanes;  // vectors per packed block

  // Columns of y that a tile may write, and how it finishes them.
  struct Output {
    const LinearArgs* args;
    int64_t n_end;

    // Total of the chunks so far of columns [column, column + kLanes) of a row of y.
    F Load(const float* y, int64_t column) const {
      if (column + kLanes <= n_end) return V::Load(y + column);
      return column < n_end ? V::LoadPart(y + column, n_end - column) : V::Zero();
    }
    void Store(float* y, int64_t column, F value) const {
      if (column + kLanes <= n_end) {
        V::Store(y + column, value);
      } else if (column < n_end) {
        V::StorePart(y + column, value, n_end - column);
      }
    }
    void Finish(float* y, int64_t column, F total) const {
      if (args->scales != nullptr) total = V::Mul(total, V::Load(args->scales + column));
      if (args->bias != nullptr) total = V::Add(total, V::Load(args->bias + column));
      Store(y, column, total);
    }
  };

  // R rows by B blocks, weights converted in registers: for few rows, where reading weights is the
  // work. `first` holds the first column of each block.
  template <LinearFormat format, int R, int B>
  static __attribute__((noinline)) void DirectTile(const Output& out, int64_t row,
                                                   const int64_t* first) {
    constexpr int64_t kColumns = ColumnsPerStep(format);
    const LinearArgs& args = *out.args;
    const int64_t k = args.k;
    const int64_t steps = (k + kColumns - 1) / kColumns;
    const float* x = static_cast<const float*>(args.x) + row * k;  // [R, k]
    const char* w[B];
#pragma GCC unroll 4
    for (int b = 0; b < B; ++b) {
      w[b] = static_cast<const char*>(args.weights) + first[b] / kPackedRows * steps * kLineBytes;
    }
    F totals[R][B][kParts];
    for (auto& row_totals : totals) {
      for (auto& block : row_totals) {
        for (F& total : block) total = V::Zero();
      }
    }
    for (int64_t begin = 0; begin < k; begin += kChunk) {
      const int64_t end = begin + kChunk < k ? begin + kChunk : k;
      F sums[R][B][kParts];
#pragma GCC unroll 32
      for (int i = 0; i < R * B * kParts; ++i) {
        sums[i / (B * kParts)][i / kParts % B][i % kParts] = V::Zero();
      }
      int64_t column = begin;
      for (; column + kColumns <= end; column += kColumns) {
        DirectStep<format, R, B, kColumns>(x + column, k, w, column / kColumns * kLineBytes, sums);
      }
      for (int64_t j = 0; column < end; ++column, ++j) {
        LastColumn<format, R, B>(x + column, k, w, (steps - 1) * kLineBytes, j, sums);
      }
#pragma GCC unroll 32
      for (int i = 0; i < R * B * kParts; ++i) {
        const int r = i / (B * kParts), b = i / kParts % B, p = i % kParts;
        totals[r][b][p] = V::Add(totals[r][b][p], sums[r][b][p]);
      }
    }
    for (int r = 0; r < R; ++r) {
      float* y = args.y + (row + r) * args.y_stride;
      for (int b = 0; b < B; ++b) {
        for (int p = 0; p < kParts; ++p) out.Finish(y, first[b] + p * kLanes, totals[r][b][p]);
      }
    }
  }

  // One step of all blocks: adds columns x[0:C) of R rows.
  template <LinearFormat format, int R, int B, int64_t C>
  static inline __attribute__((always_inline)) void DirectStep(const float* x, int64_t x_stride,
                                                               const char* const* w, int64_t offset,
                                                               F (&sums)[R][B][kParts]) {
    // The order of registers' lives: parts within columns keep one x alive at a time, where columns
    // within parts would keep R * C, and sums would be spilled; one row has few enough of them.
    constexpr int kPartsAtOnce = R == 1 ? 1 : kParts;
#pragma GCC unroll 4
    for (int b = 0; b < B; ++b) {
#pragma GCC unroll 2
      for (int begin = 0; begin < kParts; begin += kPartsAtOnce) {
        F values[kPartsAtOnce][C];
#pragma GCC unroll 2
        for (int p = 0; p < kPartsAtOnce; ++p) {
          W::template Convert<format>(w[b] + offset + (begin + p) * (kLineBytes / kParts),
                                      values[p]);
        }
#pragma GCC unroll 4
        for (int64_t j = 0; j < C; ++j) {
#pragma GCC unroll 8
          for (int r = 0; r < R; ++r) {
            const F x_value = V::Set(x[r * x_stride + j]);
#pragma GCC unroll 2
            for (int p = 0; p < kPartsAtOnce; ++p) {
              F& sum = sums[r][b][begin + p];
              sum = V::MulAdd(x_value, values[p][j], sum);
            }
          }
        }
      }
    }
  }

  // Column j of a last step that k does not fill: x has no such columns to multiply the padding
  // with.
  template <LinearFormat format, int R, int B>
  static void LastColumn(const float* x, int64_t x_stride, const char* const* w, int64_t offset,
                         int64_t j, F (&sums)[R][B][kParts]) {
    for (int b = 0; b < B; ++b) {
      for (int p = 0; p < kParts; ++p) {
        F values[ColumnsPerStep(format)];
        W::template Convert<format>(w[b] + offset + p * (kLineBytes / kParts), values);
        for (int r = 0; r < R; ++r) {
          sums[r][b][p] = V::MulAdd(V::Set(x[r * x_stride]), values[j], sums[r][b][p]);
        }
      }
    }
  }

  // Converts columns [begin, end) of a block to float32 [end - begin rounded up to a step, 16].
  template <LinearFormat format>
  static void ConvertChunk(const char* block, int64_t begin, int64_t end, float* destination) {
    constexpr int64_t kColumns = ColumnsPerStep(format);
    for (int64_t column = begin; column < end; column += kColumns) {
      const char* line = block + column / kColumns * kLineBytes;
#pragma GCC unroll 2
      for (int p = 0; p < kParts; ++p) {
        F values[kColumns];
        W::template Convert<format>(line + p * (kLineBytes / kParts), values);
#pragma GCC unroll 4
        for (int64_t j = 0; j < kColumns; ++j) {
          V::Store(destination + (column - begin + j) * kPackedRows + p * kLanes, values[j]);
        }
      }
    }
  }

  struct Chunk {
    const float* x;  // first row of the tile, first column of the chunk
    int64_t x_stride;
    const float* const* w;  // of each block, float32 [columns, 16]
    int64_t columns;
    bool is_first;
    bool is_last;
  };

  // R rows by B blocks of one chunk of float32 weights; totals of the chunks before are in y.
  template <int R, int B>
  static __attribute__((noinline)) void ChunkTile(const Output& out, const Chunk& chunk,
                                                  int64_t row, int64_t first) {
    F sums[R][B][kParts];
#pragma GCC unroll 32
    for (int i = 0; i < R * B * kParts; ++i) {
      sums[i / (B * kParts)][i / kParts % B][i % kParts] = V::Zero();
    }
    for (int64_t column = 0; column < chunk.columns; ++column) {
      F values[B][kParts];
#pragma GCC unroll 8
      for (int i = 0; i < B * kParts; ++i) {
        values[i / kParts][i % kParts] =
            V::Load(chunk.w[i / kParts] + column * kPackedRows + i % kParts * kLanes);
      }
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const F x = V::Set(chunk.x[r * chunk.x_stride + column]);
#pragma GCC unroll 8
        for (int i = 0; i < B * kParts; ++i) {
          sums[r][i / kParts][i % kParts] =
              V::MulAdd(x, values[i / kParts][i % kParts], sums[r][i / kParts][i % kParts]);
        }
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      float* y = out.args->y + (row + r) * out.args->y_stride;
#pragma GCC unroll 8
      for (int i = 0; i < B * kParts; ++i) {
        const int64_t at = first + i * kLanes;
        if (at >= out.n_end) continue;
        const F before = chunk.is_first ? V::Zero() : out.Load(y, at);
        const F total = V::Add(before, sums[r][i / kParts][i % kParts]);
        if (chunk.is_last) {
          out.Finish(y, at, total);
        } else {
          out.Store(y, at, total);
        }
      }
    }
  }

  template <int R, int B>
  static void ChunkTileOf(int rows, const Output& out, const Chunk& chunk, int64_t row,
                          int64_t first) {
    if constexpr (R > 1) {
      if (rows < R) return ChunkTileOf<R - 1, B>(rows, out, chunk, row, first);
    }
    ChunkTile<R, B>(out, chunk, row, first);
  }

  // All rows by B blocks.
  template <LinearFormat format, int B>
  static void Panel(const Output& out, int64_t m_begin, int64_t m_end, int64_t first) {
    const LinearArgs& args = *out.args;
    const int64_t steps = (args.k + ColumnsPerStep(format) - 1) / ColumnsPerStep(format);
    alignas(64) float converted[format == LinearFormat::kF32 ? 1 : B][kChunk * kPackedRows];
    for (int64_t begin = 0; begin < args.k; begin += kChunk) {
      const int64_t end = begin + kChunk < args.k ? begin + kChunk : args.k;
      const float* w[B];
      for (int b = 0; b < B; ++b) {
        const char* block =
            static_cast<const char*>(args.weights) + (first / kPackedRows + b) * steps * kLineBytes;
        if constexpr (format == LinearFormat::kF32) {
          w[b] = reinterpret_cast<const float*>(block + begin * kLineBytes);
        } else {
          ConvertChunk<format>(block, begin, end, converted[b]);
          w[b] = converted[b];
        }
      }
      for (int64_t row = m_begin; row < m_end; row += W::kTileRows) {
        const Chunk chunk = {static_cast<const float*>(args.x) + row * args.k + begin,
                             args.k,
                             w,
                             end - begin,
                             begin == 0,
                             end == args.k};
        const int64_t left = m_end - row;
        const int rows = static_cast<int>(left < W::kTileRows ? left : W::kTileRows);
        ChunkTileOf<W::kTileRows, B>(rows, out, chunk, row, first);
      }
    }
  }

  template <LinearFormat format, int B>
  static void PanelsOf(const Output& out, int64_t m_begin, int64_t m_end, int64_t first) {
    for (; first + B * kPackedRows < out.n_end + kPackedRows; first += B * kPackedRows) {
      Panel<format, B>(out, m_begin, m_end, first);
    }
    if constexpr (B > 1) {
      if (first < out.n_end) PanelsOf<format, B - 1>(out, m_begin, m_end, first);
    }
  }

  template <LinearFormat format, int R, int B>
  static void DirectTileOf(int64_t rows, const Output& out, int64_t row, const int64_t* first) {
    if constexpr (R > 1) {
      if (rows < R) return DirectTileOf<format, R - 1, B>(rows, out, row, first);
    }
    DirectTile<format, R, B>(out, row, first);
  }

  // A few rows, R at a time, by all blocks, B at a time and those far apart: as many streams of
  // memory. Rows after the first R find the weights in the cache.
  template <LinearFormat format, int R, int B>
  static void DirectRows(const Output& out, int64_t m_begin, int64_t m_end, int64_t n_begin) {
    const int64_t blocks = (out.n_end - n_begin + kPackedRows - 1) / kPackedRows;
    const int64_t apart = blocks / B;
    for (int64_t i = 0; i < apart; ++i) {
      int64_t first[B];
      for (int b = 0; b < B; ++b) first[b] = n_begin + (i + b * apart) * kPackedRows;
      for (int64_t row = m_begin; row < m_end; row += R) {
        DirectTileOf<format, R, B>(m_end - row, out, row, first);
      }
    }
    if constexpr (B > 1) {
      const int64_t next = n_begin + apart * B * kPackedRows;
      if (next < out.n_end) DirectRows<format, R, B - 1>(out, m_begin, m_end, next);
    }
  }

  template <LinearFormat format>
  static void Run(const LinearArgs& args, int64_t m_begin, int64_t m_end, int64_t n_begin,
                  int64_t n_end) {
    if (m_begin >= m_end || n_begin >= n_end) return;
    const Output out = {&args, n_end};
    if (args.k == 0) return ClearRows(out, m_begin, m_end, n_begin);
    switch (m_end - m_begin) {
      case 1:
        return DirectRows<format, 1, 4>(out, m_begin, m_end, n_begin);
      case 2:
        return DirectRows<format, 2, W::kDirectBlocksOf2>(out, m_begin, m_end, n_begin);
      case 3:
      case 4:
      case 5:
      case 6:
      case 7:
      case 8:
        return DirectRows<format, 4, W::kDirectBlocksOf4>(out, m_begin, m_end, n_begin);
      default:
        return PanelsOf<format, W::kTileBlocks>(out, m_begin, m_end, n_begin);
    }
  }

  // k = 0: the bias alone.
  static void ClearRows(const Output& out, int64_t m_begin, int64_t m_end, int64_t n_begin) {
    for (int64_t row = m_begin; row < m_end; ++row) {
      float* y = out.args->y + row * out.args->y_stride;
      for (int64_t at = n_begin; at < out.n_end; at += kLanes) out.Finish(y, at, V::Zero());
    }
  }
};

}  // namespace
}  // namespace octavo
