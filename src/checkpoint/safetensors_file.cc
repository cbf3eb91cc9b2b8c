#include "checkpoint/safetensors_file.h"

#include <fmt/format.h>
#include <octavo/error.h>

#include <array>
#include <utility>

#include "checkpoint/safetensors_header.h"

namespace octavo {
namespace {

std::string ReadHeader(const File& file) {
  const auto damaged = [&](const std::string& message) {
    return Error(ErrorCode::kDataLoss, fmt::format("{}: {}", file.path(), message));
  };
  if (file.size() < kSafetensorsLengthBytes) {
    throw damaged(
        fmt::format("the file has {} bytes, expected at least {}: the length of its header",
                    file.size(), kSafetensorsLengthBytes));
  }
  std::array<std::byte, kSafetensorsLengthBytes> prefix;
  file.ReadAt(0, prefix);
  uint64_t length = 0;
  for (size_t i = 0; i < prefix.size(); ++i) {
    length |= static_cast<uint64_t>(prefix[i]) << (8 * i);
  }
  // What a clone without Git LFS leaves in place of large files.
  constexpr uint64_t kLfsPointer = 0x206e6f6973726576;  // "version "
  if (length == kLfsPointer && file.size() < 1024) {
    throw damaged("a Git LFS pointer, not the file itself: fetch it with `git lfs pull`");
  }
  if (length > kSafetensorsHeaderLimit) {
    throw damaged(
        fmt::format("header length {}, expected at most {}", length, kSafetensorsHeaderLimit));
  }
  if (length > file.size() - kSafetensorsLengthBytes) {
    throw damaged(
        fmt::format("header length {} runs past the end of the file: the file has {} bytes, "
                    "expected at least {}",
                    length, file.size(), length + kSafetensorsLengthBytes));
  }
  std::string header(length, '\0');
  file.ReadAt(kSafetensorsLengthBytes, std::as_writable_bytes(std::span(header)));
  return header;
}

}  // namespace

SafetensorsFile::SafetensorsFile(std::string path) : file_(std::move(path)) {
  tensors_ = ParseSafetensorsHeader(file_.path(), ReadHeader(file_), file_.size());
  index_.reserve(tensors_.size());
  for (size_t i = 0; i < tensors_.size(); ++i) index_.emplace(tensors_[i].name, i);
}

const TensorEntry* SafetensorsFile::Find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

}  // namespace octavo
