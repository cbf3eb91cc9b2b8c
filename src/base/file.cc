#include "base/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <octavo/error.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace octavo {
namespace {

[[noreturn]] void ThrowCannotOpen(const std::string& path, int error) {
  struct stat link;
  if (error == ENOENT && lstat(path.c_str(), &link) == 0 && S_ISLNK(link.st_mode)) {
    char target[4096];
    const ssize_t length = readlink(path.c_str(), target, sizeof target);
    throw Error(ErrorCode::kNotFound,
                fmt::format("{}: symbolic link to a file that does not exist: {}", path,
                            std::string(target, length > 0 ? static_cast<size_t>(length) : 0)));
  }
  if (error == ENOENT || error == ENOTDIR) {
    throw Error(ErrorCode::kNotFound, fmt::format("{}: file not found", path));
  }
  throw Error(ErrorCode::kUnavailable,
              fmt::format("{}: cannot be opened: {}", path, std::strerror(error)));
}

}  // namespace

File::File(std::string path) : path_(std::move(path)) {
  descriptor_ = open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a FIFO must not block
  if (descriptor_ < 0) ThrowCannotOpen(path_, errno);
  struct stat status;
  if (fstat(descriptor_, &status) != 0 || !S_ISREG(status.st_mode)) {
    close(std::exchange(descriptor_, -1));
    throw Error(ErrorCode::kInvalidArgument, fmt::format("{}: not a regular file", path_));
  }
  size_ = static_cast<uint64_t>(status.st_size);
}

File::~File() {
  if (descriptor_ >= 0) close(descriptor_);
}

File::File(File&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      size_(std::exchange(other.size_, 0)) {}

File& File::operator=(File&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(size_, other.size_);
  return *this;
}

void File::ReadAt(uint64_t offset, std::span<std::byte> destination) const {
  size_t done = 0;
  while (done < destination.size()) {
    const ssize_t got = pread(descriptor_, destination.data() + done, destination.size() - done,
                              static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      throw Error(ErrorCode::kUnavailable,
                  fmt::format("{}: reading {} bytes at offset {} failed: {}", path_,
                              destination.size(), offset, std::strerror(errno)));
    }
    if (got == 0) {
      struct stat status = {};  // what it is now, the file may have been cut since it was opened
      fstat(descriptor_, &status);
      throw Error(ErrorCode::kDataLoss,
                  fmt::format("{}: the file ends at byte {}, {} bytes were expected at offset {}",
                              path_, status.st_size, destination.size(), offset));
    }
    done += static_cast<size_t>(got);
  }
}

void File::WillNeed(uint64_t offset, uint64_t length) const noexcept {
  posix_fadvise(descriptor_, static_cast<off_t>(offset), static_cast<off_t>(length),
                POSIX_FADV_WILLNEED);
}

std::string ReadTextFile(const std::string& path, uint64_t limit) {
  const File file(path);
  if (file.size() > limit) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{}: {} bytes, expected at most {}", path, file.size(), limit));
  }
  std::string text(file.size(), '\0');
  file.ReadAt(0, std::as_writable_bytes(std::span(text)));
  return text;
}

bool FileExists(const std::string& path) {
  struct stat status;
  return stat(path.c_str(), &status) == 0;
}

bool HasEntry(const std::string& path) {
  struct stat status;
  return lstat(path.c_str(), &status) == 0;
}

}  // namespace octavo
