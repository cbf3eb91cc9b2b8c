#include "tensor/dtype.h"

#include <fmt/format.h>
#include <octavo/error.h>

#include <cstring>

#include "base/float16.h"

namespace octavo {
namespace {

struct DTypeInfo {
  DType dtype;
  int64_t bytes;
  const char* name;
  const char* safetensors;
};

constexpr DTypeInfo kDTypes[] = {
    {DType::kBf16, 2, "bf16", "BF16"},
    {DType::kF16, 2, "f16", "F16"},
    {DType::kF32, 4, "f32", "F32"},
    {DType::kF64, 8, "f64", "F64"},
    {DType::kF8E4M3, 1, "f8E4M3FN", "F8_E4M3"},
    {DType::kF8E5M2, 1, "f8E5M2", "F8_E5M2"},
    {DType::kS8, 1, "s8", "I8"},
    {DType::kS16, 2, "s16", "I16"},
    {DType::kS32, 4, "s32", "I32"},
    {DType::kS64, 8, "s64", "I64"},
    {DType::kU8, 1, "u8", "U8"},
    {DType::kU16, 2, "u16", "U16"},
    {DType::kU32, 4, "u32", "U32"},
    {DType::kU64, 8, "u64", "U64"},
    {DType::kBool, 1, "i1", "BOOL"},
    {DType::kS4, 1, "s4", ""},
};

const DTypeInfo& InfoOf(DType dtype) { return kDTypes[static_cast<size_t>(dtype)]; }

template <typename Stored, typename Convert>
void ConvertEach(const void* source, int64_t count, float* destination, Convert&& convert) {
  const auto* bytes = static_cast<const unsigned char*>(source);
  for (int64_t i = 0; i < count; ++i) {
    Stored stored;
    std::memcpy(&stored, bytes + i * static_cast<int64_t>(sizeof stored), sizeof stored);
    destination[i] = convert(stored);
  }
}

}  // namespace

int64_t ByteSize(DType dtype) { return InfoOf(dtype).bytes; }
const char* Name(DType dtype) { return InfoOf(dtype).name; }
const char* SafetensorsName(DType dtype) { return InfoOf(dtype).safetensors; }

std::optional<DType> DTypeFromSafetensorsName(std::string_view name) {
  if (name.empty()) return std::nullopt;
  for (const DTypeInfo& info : kDTypes) {
    if (name == info.safetensors) return info.dtype;
  }
  return std::nullopt;
}

bool IsFloat(DType dtype) {
  return dtype == DType::kBf16 || dtype == DType::kF16 || dtype == DType::kF32 ||
         dtype == DType::kF64;
}

void ConvertToF32(DType dtype, const void* source, int64_t count, float* destination) {
  switch (dtype) {
    case DType::kBf16:
      return ConvertEach<uint16_t>(source, count, destination, Bf16ToF32);
    case DType::kF16:
      return ConvertEach<uint16_t>(source, count, destination, F16ToF32);
    case DType::kF32:
      std::memcpy(destination, source, static_cast<size_t>(count) * sizeof(float));
      return;
    case DType::kF64:
      return ConvertEach<double>(source, count, destination,
                                 [](double value) { return static_cast<float>(value); });
    default:
      throw Error(ErrorCode::kInternal,
                  fmt::format("conversion of {} to f32: not a float type", Name(dtype)));
  }
}

}  // namespace octavo
