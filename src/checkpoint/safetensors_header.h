// The JSON header of a .safetensors file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/safetensors_file.h"

namespace octavo {

inline constexpr uint64_t kSafetensorsLengthBytes = 8;  // little-endian, before the header
inline constexpr uint64_t kSafetensorsHeaderLimit = 100'000'000;  // of the reference implementation

// Checks the header of a file of `file_size` bytes, as SafetensorsFile describes it, and returns
// the tensors by offset. file_size >= 8 + header.size(). Throws kDataLoss naming `path`.
std::vector<TensorEntry> ParseSafetensorsHeader(const std::string& path, std::string_view header,
                                                uint64_t file_size);

}  // namespace octavo
