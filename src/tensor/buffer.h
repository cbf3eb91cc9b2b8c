// Owned, zero-filled memory aligned to 64 bytes. Large buffers are mapped on their own (pages
// appear in the resident set only when touched, and go back at once when freed) and advised to use
// huge pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

namespace octavo {

class Buffer {
 public:
  Buffer() = default;
  // Throws kResourceExhausted, saying how much was asked for.
  explicit Buffer(size_t bytes);
  ~Buffer();
  Buffer(Buffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  void* data() { return data_; }
  const void* data() const { return data_; }
  template <typename T>
  T* as() {
    return static_cast<T*>(data_);
  }
  template <typename T>
  const T* as() const {
    return static_cast<const T*>(data_);
  }
  size_t bytes() const { return bytes_; }
  bool empty() const { return bytes_ == 0; }

 private:
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace octavo
