// Quantizes rows of a checkpoint: the arithmetic that schemes share, on the kernels of this CPU.
// Schemes call this and see no kernel.
#pragma once

#include <cstdint>
#include <string_view>

#include "tensor/dtype.h"

namespace octavo {

// Rows of a weight as the checkpoint stores them, and whose they are, for messages.
struct SourceRows {
  std::string_view tensor;
  DType stored = DType::kBf16;
  int64_t row_begin = 0;  // index within the tensor of the first row given
  int64_t rows = 0;
  int64_t in_features = 0;
  const void* data = nullptr;  // [rows, in_features] of `stored`, may be unaligned
};

// Per-channel symmetric int8 in float32: s = max(absmax, 1e-5) / 127, q = round-half-even(w * (1 /
// s)). values [rows, in_features], scales [rows]. float64 is rounded to float32 first. Throws
// kDataLoss naming tensor, row and column of the first weight that is not finite in float32.
void QuantizeRowsS8Channel(const SourceRows& source, int8_t* values, float* scales);

// Throws the same error for a NaN or infinity in rows that stay as they are stored, in a model that
// is quantized.
void RequireFiniteRows(const SourceRows& source);

}  // namespace octavo
