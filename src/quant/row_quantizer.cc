#include "quant/row_quantizer.h"

#include <fmt/format.h>
#include <octavo/error.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/dispatch.h"

namespace octavo {
namespace {

const void* RowAt(const SourceRows& source, int64_t row) {
  return static_cast<const char*>(source.data) + row * source.in_features * ByteSize(source.stored);
}

// Finds the column that the kernel did not report: it only says which row is bad, to stay fast.
[[noreturn]] void ThrowNotFinite(const SourceRows& source, int64_t row) {
  std::vector<float> values(static_cast<size_t>(source.in_features));  // [in_features]
  ConvertToF32(source.stored, RowAt(source, row), source.in_features, values.data());
  size_t column = 0;
  while (column + 1 < values.size() && std::isfinite(values[column])) ++column;
  throw Error(
      ErrorCode::kDataLoss,
      fmt::format("tensor {}, row {}, column {}: the weight is {}{}, expected finite values "
                  "to quantize",
                  source.tensor, source.row_begin + row, column, values[column],
                  source.stored == DType::kF64 ? " in float32" : ""));
}

// Through one row of float32, so that the extra memory is a row, not a panel.
int64_t QuantizeF64Rows(const SourceRows& source, int8_t* values, float* scales) {
  std::vector<float> row_f32(static_cast<size_t>(source.in_features));  // [in_features]
  for (int64_t row = 0; row < source.rows; ++row) {
    ConvertToF32(DType::kF64, RowAt(source, row), source.in_features, row_f32.data());
    const int64_t bad =
        HostKernels().quantize_rows_s8(DType::kF32, row_f32.data(), 1, source.in_features,
                                       values + row * source.in_features, scales + row);
    if (bad >= 0) return row;
  }
  return -1;
}

// Whether an element has all exponent bits set: infinity or NaN.
template <typename Bits>
bool HasNonFinite(const void* data, int64_t count, Bits exponent) {
  const auto* bytes = static_cast<const char*>(data);
  bool found = false;
  for (int64_t i = 0; i < count; ++i) {
    Bits bits;
    std::memcpy(&bits, bytes + i * static_cast<int64_t>(sizeof bits), sizeof bits);
    found |= (bits & exponent) == exponent;
  }
  return found;
}

bool HasNonFinite(DType dtype, const void* data, int64_t count) {
  switch (dtype) {
    case DType::kBf16:
      return HasNonFinite<uint16_t>(data, count, 0x7f80);
    case DType::kF16:
      return HasNonFinite<uint16_t>(data, count, 0x7c00);
    case DType::kF32:
      return HasNonFinite<uint32_t>(data, count, 0x7f800000);
    case DType::kF64:
      return HasNonFinite<uint64_t>(data, count, 0x7ff0000000000000);
    default:
      return false;
  }
}

}  // namespace

void RequireFiniteRows(const SourceRows& source) {
  for (int64_t row = 0; row < source.rows; ++row) {
    if (HasNonFinite(source.stored, RowAt(source, row), source.in_features)) {
      ThrowNotFinite(source, row);
    }
  }
}

void QuantizeRowsS8Channel(const SourceRows& source, int8_t* values, float* scales) {
  const int64_t bad = source.stored == DType::kF64
                          ? QuantizeF64Rows(source, values, scales)
                          : HostKernels().quantize_rows_s8(source.stored, source.data, source.rows,
                                                           source.in_features, values, scales);
  if (bad >= 0) ThrowNotFinite(source, bad);
}

}  // namespace octavo
