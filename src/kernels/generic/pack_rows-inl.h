// pack_rows (kernel_table.h) over a transposing copy T: in units of four bytes, packing is a
// transposition of every 16 rows, whatever the element.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/kernel_table.h"

namespace octavo {
namespace {

template <typename T>
struct PackRowsWith {
  static constexpr int64_t kUnit = 4;                    // bytes of one row in one step
  static constexpr int64_t kLine = kPackedRows * kUnit;  // bytes of one step

  // Bytes [begin, row_bytes) of `rows` rows, unit by unit.
  static void CopyUnits(const char* from, int64_t row_bytes, int64_t rows, int64_t begin,
                        char* to) {
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t at = begin; at < row_bytes; at += kUnit) {
        const int64_t left = row_bytes - at;
        std::memcpy(to + at / kUnit * kLine + row * kUnit, from + row * row_bytes + at,
                    static_cast<size_t>(left < kUnit ? left : kUnit));
      }
    }
  }

  static void Run(const void* source, int64_t element_bytes, int64_t row_begin, int64_t rows,
                  int64_t k, void* packed) {
    const int64_t row_bytes = k * element_bytes;
    const int64_t steps = (row_bytes + kUnit - 1) / kUnit;
    for (int64_t row = 0; row < rows; row += kPackedRows) {
      const char* from = static_cast<const char*>(source) + row * row_bytes;
      char* to = static_cast<char*>(packed) + (row_begin + row) / kPackedRows * steps * kLine;
      if (rows - row < kPackedRows) {
        CopyUnits(from, row_bytes, rows - row, 0, to);
        continue;
      }
      int64_t at = 0;
      for (; at + T::kBytes <= row_bytes; at += T::kBytes) {
        T::Transpose(from + at, row_bytes, to + at / kUnit * kLine);
      }
      if (at < row_bytes) CopyUnits(from, row_bytes, kPackedRows, at, to);
    }
  }
};

}  // namespace
}  // namespace octavo
