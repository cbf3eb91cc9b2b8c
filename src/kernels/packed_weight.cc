#include "kernels/packed_weight.h"

#include <octavo/error.h>

#include <cstring>

#include "base/float16.h"

namespace octavo {
namespace {

constexpr int64_t kStepBytes = 4;  // bytes of one row in one step

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t ColumnsPerStep(const WeightFormat& format) {
  return format.element == DType::kS4 ? 2 * kStepBytes : kStepBytes / ByteSize(format.element);
}

int64_t BlocksOf(const WeightFormat& format, int64_t k) {
  return format.granularity == Granularity::kBlock ? CeilDiv(k, format.block) : 1;
}

template <typename Element>
Element LoadElement(const unsigned char* bytes) {
  Element value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

// Column `column` of a step, of which `step` is the row's four bytes.
float ElementOfStep(DType element, const unsigned char* step, int64_t column) {
  switch (element) {
    case DType::kF32:
      return LoadElement<float>(step);
    case DType::kBf16:
      return Bf16ToF32(LoadElement<uint16_t>(step + 2 * column));
    case DType::kF16:
      return F16ToF32(LoadElement<uint16_t>(step + 2 * column));
    case DType::kS4: {
      const int byte = step[column % kStepBytes];
      return static_cast<float>((column < kStepBytes ? byte & 0xf : byte >> 4) - 8);
    }
    default:
      return static_cast<float>(LoadElement<int8_t>(step + column));
  }
}

}  // namespace

LinearFormat LinearFormatOf(const WeightFormat& format) {
  const bool scaled = format.scale == DType::kF32;
  const bool blocks = format.granularity == Granularity::kBlock && format.block > 0 &&
                      format.block % kBlockUnit == 0;
  if (format == WeightFormat::Plain(DType::kF32)) return LinearFormat::kF32;
  if (format == WeightFormat::Plain(DType::kBf16)) return LinearFormat::kBf16;
  if (format == WeightFormat::Plain(DType::kF16)) return LinearFormat::kF16;
  if (format == WeightFormat::S8Channel()) return LinearFormat::kS8Channel;
  if (format.element == DType::kS8 && blocks && scaled) return LinearFormat::kS8Block;
  if (format.element == DType::kS4 && scaled &&
      (blocks || format.granularity == Granularity::kChannel)) {
    return LinearFormat::kS4Block;
  }
  throw Error(ErrorCode::kUnimplemented,
              "no linear kernel reads " + ToString(format) +
                  "; expected f32, bf16, f16, or s8 or s4 with float32 scales per channel or per "
                  "block of a multiple of 32 columns");
}

int64_t PackedBlock(const WeightFormat& format, int64_t k) {
  if (format.granularity == Granularity::kBlock) return format.block;
  if (format.element != DType::kS4) return 0;
  return k > 0 ? CeilDiv(k, kBlockUnit) * kBlockUnit : kBlockUnit;
}

int64_t PackedBytes(const WeightFormat& format, int64_t n, int64_t k) {
  LinearFormatOf(format);  // refuses the others
  return CeilDiv(n, kPackedRows) * CeilDiv(k, ColumnsPerStep(format)) * kPackedRows * kStepBytes;
}

int64_t PackedScales(const WeightFormat& format, int64_t n, int64_t k) {
  if (format.granularity == Granularity::kNone) return 0;
  return CeilDiv(n, kPackedRows) * kPackedRows * BlocksOf(format, k);
}

void PackScales(const WeightFormat& format, const float* source, int64_t row_begin, int64_t rows,
                int64_t k, float* packed) {
  const int64_t blocks = BlocksOf(format, k);
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t row = row_begin + i;
    float* to = packed + row / kPackedRows * blocks * kPackedRows + row % kPackedRows;
    for (int64_t block = 0; block < blocks; ++block) {
      to[block * kPackedRows] = source[i * blocks + block];
    }
  }
}

void UnpackRow(const WeightFormat& format, const void* packed, const float* scales, int64_t row,
               int64_t k, float* destination) {
  LinearFormatOf(format);
  const int64_t columns_per_step = ColumnsPerStep(format);
  const int64_t steps = CeilDiv(k, columns_per_step);
  const unsigned char* base =
      static_cast<const unsigned char*>(packed) +
      ((row / kPackedRows) * steps * kPackedRows + row % kPackedRows) * kStepBytes;
  for (int64_t column = 0; column < k; ++column) {
    const unsigned char* step = base + column / columns_per_step * kPackedRows * kStepBytes;
    destination[column] = ElementOfStep(format.element, step, column % columns_per_step);
  }
  if (format.granularity == Granularity::kNone) return;
  const int64_t blocks = BlocksOf(format, k);
  const int64_t block = format.granularity == Granularity::kBlock ? format.block : k;
  const float* row_scales =
      scales + row / kPackedRows * blocks * kPackedRows + row % kPackedRows;  // [blocks], 16 apart
  for (int64_t column = 0; column < k; ++column) {
    destination[column] *= row_scales[column / block * kPackedRows];
  }
}

}  // namespace octavo
