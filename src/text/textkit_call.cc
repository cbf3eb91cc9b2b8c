#include "text/textkit_call.h"

#include <fmt/format.h>
#include <octavo/error.h>

#include <limits>
#include <memory>

namespace octavo {
namespace {

ErrorCode CodeOf(textkit_status status) {
  switch (status) {
    case TEXTKIT_INVALID_ARGUMENT:
    case TEXTKIT_RAISED_BY_TEMPLATE:
      return ErrorCode::kInvalidArgument;
    case TEXTKIT_DATA_LOSS:
      return ErrorCode::kDataLoss;
    case TEXTKIT_RESOURCE_EXHAUSTED:
      return ErrorCode::kResourceExhausted;
    default:
      return ErrorCode::kInternal;
  }
}

}  // namespace

void CheckTextkit(textkit_status status, const std::string& what) {
  if (status == TEXTKIT_OK) return;
  throw Error(CodeOf(status), fmt::format("{}: {}", what, textkit_last_error()));
}

std::string TakeString(textkit_bytes bytes) {
  // Freed also when the copy below runs out of memory.
  auto release = [](textkit_bytes* owned) { textkit_bytes_free(*owned); };
  std::unique_ptr<textkit_bytes, decltype(release)> guard(&bytes, release);
  return std::string(reinterpret_cast<const char*>(bytes.data), bytes.size);
}

std::vector<int64_t> TakeIds(textkit_ids ids) {
  auto release = [](textkit_ids* owned) { textkit_ids_free(*owned); };
  std::unique_ptr<textkit_ids, decltype(release)> guard(&ids, release);
  return std::vector<int64_t>(ids.data, ids.data + ids.size);
}

uint32_t ToTextkitId(int64_t id) {
  if (id < 0 || id > std::numeric_limits<uint32_t>::max()) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("token id {} is not in 0..{}", id,
                                                         std::numeric_limits<uint32_t>::max()));
  }
  return static_cast<uint32_t>(id);
}

std::vector<uint32_t> ToTextkitIds(std::span<const int64_t> ids) {
  std::vector<uint32_t> converted;
  converted.reserve(ids.size());
  for (int64_t id : ids) converted.push_back(ToTextkitId(id));
  return converted;
}

}  // namespace octavo
