// One .safetensors file: the header, validated to the letter (huggingface/safetensors, README
// "Format"), and reading tensor data by position. Never maps the file.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/file.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace octavo {

struct TensorEntry {
  std::string name;
  DType dtype = DType::kBf16;
  Shape shape;
  uint64_t offset = 0;  // from the start of the file
  uint64_t bytes = 0;
};

class SafetensorsFile {
 public:
  // Reads and checks the header: its length, JSON without duplicate keys, dtypes, shapes, and data
  // ranges in bounds, of the size that dtype x shape asks for, without overlap, holes or trailing
  // bytes. Throws kDataLoss naming the file and tensor, what was expected and what was found.
  explicit SafetensorsFile(std::string path);

  const std::string& path() const { return file_.path(); }
  const File& file() const { return file_; }
  const std::vector<TensorEntry>& tensors() const { return tensors_; }  // by offset
  const TensorEntry* Find(std::string_view name) const;                 // null when absent

 private:
  File file_;
  std::vector<TensorEntry> tensors_;
  std::unordered_map<std::string_view, size_t> index_;
};

// A tensor to write. `data` holds dtype x shape bytes.
struct TensorToWrite {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
  std::span<const std::byte> data;
};

// Writes a .safetensors file under a temporary name beside `path` and renames it when complete.
// Throws kUnavailable when it cannot be written; nothing is left under `path` then.
void WriteSafetensors(const std::string& path, const std::vector<TensorToWrite>& tensors);

}  // namespace octavo
