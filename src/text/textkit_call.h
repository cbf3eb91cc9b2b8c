// Calls into rust/textkit: its statuses become octavo::Error, its buffers become strings and
// vectors.
#pragma once

#include <textkit.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace octavo {

// Throws Error with "<what>: <textkit's message>" unless `status` is TEXTKIT_OK. A template's own
// raise_exception is kInvalidArgument: the request does not suit the template.
void CheckTextkit(textkit_status status, const std::string& what);

inline const uint8_t* Bytes(std::string_view text) {
  return reinterpret_cast<const uint8_t*>(text.data());
}

// Take over what textkit returned.
std::string TakeString(textkit_bytes bytes);
std::vector<int64_t> TakeIds(textkit_ids ids);

// Token ids are 64-bit in Octavo and 32-bit in textkit; kInvalidArgument names one that does not
// fit.
uint32_t ToTextkitId(int64_t id);
std::vector<uint32_t> ToTextkitIds(std::span<const int64_t> ids);

}  // namespace octavo
