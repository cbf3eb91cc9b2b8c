// Element types, spelled as StableHLO spells them (bf16, f16, f32, s8, ...).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace octavo {

enum class DType : uint8_t {
  kBf16,
  kF16,
  kF32,
  kF64,
  kF8E4M3,
  kF8E5M2,
  kS8,
  kS16,
  kS32,
  kS64,
  kU8,
  kU16,
  kU32,
  kU64,
  kBool,
  kS4,  // in arrays one code of [-8, 7] in a byte; two in a byte only where a layout says so
};

int64_t ByteSize(DType dtype);             // of an element of an array
const char* Name(DType dtype);             // "bf16"
const char* SafetensorsName(DType dtype);  // "BF16"; "" for s4, which safetensors lacks
std::optional<DType> DTypeFromSafetensorsName(std::string_view name);
bool IsFloat(DType dtype);  // bf16, f16, f32, f64

// Converts `count` elements of a float type to float32. `source` need not be aligned. Throws
// kInternal for other types.
void ConvertToF32(DType dtype, const void* source, int64_t count, float* destination);

}  // namespace octavo
