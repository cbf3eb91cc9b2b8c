// Reading files by position. Errors name the file and what the system said.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace octavo {

// A file opened for reading. ReadAt is thread-safe. Move-only; closes on destruction.
class File {
 public:
  // Throws kNotFound when the file (or what a symbolic link points at) is missing, kUnavailable
  // when it cannot be opened.
  explicit File(std::string path);
  ~File();
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;

  const std::string& path() const { return path_; }
  uint64_t size() const { return size_; }

  // Fills `destination` from `offset`. Throws kDataLoss when the file ends before that.
  void ReadAt(uint64_t offset, std::span<std::byte> destination) const;

  // Tells the kernel that this range is wanted soon.
  void WillNeed(uint64_t offset, uint64_t length) const noexcept;

 private:
  std::string path_;
  int descriptor_ = -1;
  uint64_t size_ = 0;
};

// The whole of a text file of at most `limit` bytes; kInvalidArgument when it is larger.
std::string ReadTextFile(const std::string& path, uint64_t limit = 256u << 20);

// A symbolic link whose target is missing does not exist, but has an entry.
bool FileExists(const std::string& path);
bool HasEntry(const std::string& path);

}  // namespace octavo
