#include "kernels/packed_weight.h"

#include <octavo/error.h>

#include <cstring>
#include <string>

#include "base/float16.h"

namespace octavo {
namespace {

constexpr int64_t kStepBytes = 4;  // bytes of one row in one step

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

template <typename Element>
Element LoadElement(const unsigned char* bytes) {
  Element value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

}  // namespace

LinearFormat LinearFormatOf(DType element) {
  switch (element) {
    case DType::kF32:
      return LinearFormat::kF32;
    case DType::kBf16:
      return LinearFormat::kBf16;
    case DType::kF16:
      return LinearFormat::kF16;
    case DType::kS8:
      return LinearFormat::kS8Channel;
    default:
      break;
  }
  throw Error(ErrorCode::kInternal, std::string("no linear kernel reads elements of type ") +
                                        Name(element) + "; expected f32, bf16, f16 or s8");
}

int64_t PackedBytes(DType element, int64_t n, int64_t k) {
  LinearFormatOf(element);  // refuses the other types
  const int64_t columns_per_step = kStepBytes / ByteSize(element);
  return CeilDiv(n, kPackedRows) * CeilDiv(k, columns_per_step) * kPackedRows * kStepBytes;
}

void UnpackRow(DType element, const void* packed, const float* scales, int64_t row, int64_t k,
               float* destination) {
  const LinearFormat format = LinearFormatOf(element);
  const int64_t bytes = ByteSize(element);
  const int64_t columns_per_step = kStepBytes / bytes;
  const int64_t steps = CeilDiv(k, columns_per_step);
  const unsigned char* base =
      static_cast<const unsigned char*>(packed) +
      ((row / kPackedRows) * steps * kPackedRows + row % kPackedRows) * kStepBytes;
  for (int64_t column = 0; column < k; ++column) {
    const unsigned char* at = base + (column / columns_per_step) * kPackedRows * kStepBytes +
                              (column % columns_per_step) * bytes;
    switch (format) {
      case LinearFormat::kF32:
        destination[column] = LoadElement<float>(at);
        break;
      case LinearFormat::kBf16:
        destination[column] = Bf16ToF32(LoadElement<uint16_t>(at));
        break;
      case LinearFormat::kF16:
        destination[column] = F16ToF32(LoadElement<uint16_t>(at));
        break;
      case LinearFormat::kS8Channel:
        destination[column] = static_cast<float>(LoadElement<int8_t>(at)) * scales[row];
        break;
    }
  }
}

}  // namespace octavo
