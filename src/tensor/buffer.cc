#include "tensor/buffer.h"

#include <fmt/format.h>
#include <octavo/error.h>
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

namespace octavo {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kMapFrom = size_t{1} << 21;  // one huge page: from here on a mapping of its own

}  // namespace

Buffer::Buffer(size_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  if (bytes >= kMapFrom) {
    void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped != MAP_FAILED) {
      data_ = mapped;
      madvise(data_, bytes_, MADV_HUGEPAGE);
    }
  } else {
    data_ = std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
    if (data_ != nullptr) std::memset(data_, 0, bytes);
  }
  if (data_ == nullptr) {
    throw Error(ErrorCode::kResourceExhausted, fmt::format("out of memory: {} bytes", bytes));
  }
}

Buffer::~Buffer() {
  if (data_ == nullptr) return;
  if (bytes_ >= kMapFrom) {
    munmap(data_, bytes_);
  } else {
    std::free(data_);
  }
}

}  // namespace octavo
