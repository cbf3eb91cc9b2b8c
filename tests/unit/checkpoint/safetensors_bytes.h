// Builds .safetensors files byte by byte, well-formed or not.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace octavo::testing {

inline std::string LittleEndian64(uint64_t value) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(value >> (8 * i));
  return bytes;
}

inline std::string SafetensorsBytes(std::string_view header, size_t data_bytes) {
  return LittleEndian64(header.size()) + std::string(header) + std::string(data_bytes, '\1');
}

}  // namespace octavo::testing
