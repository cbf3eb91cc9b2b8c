// Any header either describes tensors that lie within the file, or is refused as damaged.
#include <octavo/error.h>

#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "checkpoint/safetensors_header.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // The first two bytes are the length of the data section.
  if (size < 2) return 0;
  const uint64_t data_bytes = data[0] | uint64_t{data[1]} << 8;
  const std::string_view header(reinterpret_cast<const char*>(data) + 2, size - 2);
  const uint64_t file_size = octavo::kSafetensorsLengthBytes + header.size() + data_bytes;
  try {
    uint64_t next = octavo::kSafetensorsLengthBytes + header.size();
    for (const octavo::TensorEntry& tensor :
         octavo::ParseSafetensorsHeader("fuzz", header, file_size)) {
      if (tensor.offset != next) std::abort();
      next += tensor.bytes;
    }
    if (next != file_size) std::abort();
  } catch (const octavo::Error& error) {
    if (error.code() != octavo::ErrorCode::kDataLoss) std::abort();
  }
  return 0;
}
