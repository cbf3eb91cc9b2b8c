#include "checkpoint/safetensors_header.h"

#include <fmt/format.h>
#include <octavo/error.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>
#include <unordered_set>
#include <utility>

#include "checkpoint/printable.h"

namespace octavo {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxDimensions =
    64;  // numpy's limit too; keeps a hostile shape from taking memory
constexpr std::string_view kMetadataKey = "__metadata__";

[[noreturn]] void ThrowDamaged(const std::string& path, const std::string& message) {
  throw Error(ErrorCode::kDataLoss, fmt::format("{}: {}", path, message));
}

[[noreturn]] void ThrowDamaged(const std::string& path, const std::string& tensor,
                               const std::string& message) {
  ThrowDamaged(path, fmt::format("tensor {}: {}", Printable(tensor), message));
}

std::string KnownDTypes() {
  std::string names;
  for (int i = 0; i <= static_cast<int>(DType::kBool); ++i) {
    names += fmt::format("{}{}", i == 0 ? "" : ", ", SafetensorsName(static_cast<DType>(i)));
  }
  return names;
}

// A tensor as its entry describes it; data_offsets count from the start of the data section.
struct RawEntry {
  TensorEntry entry;
  uint64_t begin = 0;
  uint64_t end = 0;
};

// Takes the header apart while it is parsed: no document is built, so that a hostile header costs
// little more memory than its own length, and duplicate keys are seen.
class HeaderHandler final : public nlohmann::json_sax<Json> {
 public:
  explicit HeaderHandler(const std::string& path) : path_(path) {}

  std::vector<RawEntry> Take() { return std::move(entries_); }

  bool null() override { Unexpected("null"); }
  bool boolean(bool value) override { Unexpected(value ? "true" : "false"); }
  bool binary(Json::binary_t&) override { Unexpected("binary data"); }
  bool number_float(double, const std::string& text) override { Unexpected(Printable(text, 40)); }

  bool number_integer(int64_t value) override {  // negative: the others are unsigned
    if (place_ == Place::kShape) {
      ThrowDamaged(path_, name_, fmt::format("negative dimension {} in its shape", value));
    }
    if (place_ == Place::kOffsets) {
      ThrowDamaged(path_, name_, fmt::format("negative offset {} in data_offsets", value));
    }
    Unexpected(std::to_string(value));
  }

  bool number_unsigned(uint64_t value) override {
    if (place_ == Place::kShape) {
      if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        ThrowDamaged(path_, name_, fmt::format("dimension {} overflows 63 bits", value));
      }
      if (shape_->size() == kMaxDimensions) {
        ThrowDamaged(path_, name_, fmt::format("more than {} dimensions", kMaxDimensions));
      }
      shape_->push_back(static_cast<int64_t>(value));
      return true;
    }
    if (place_ == Place::kOffsets) {
      if (offset_count_ == 2)
        ThrowDamaged(path_, name_, "data_offsets: expected 2 numbers, found more");
      (offset_count_++ == 0 ? begin_ : end_) = value;
      return true;
    }
    Unexpected(std::to_string(value));
  }

  bool string(std::string& value) override {
    if (place_ == Place::kMetadata) return true;
    if (place_ != Place::kTensor || field_ != "dtype") {
      Unexpected(fmt::format("\"{}\"", Printable(value, 40)));
    }
    dtype_ = DTypeFromSafetensorsName(value);
    if (!dtype_) {
      ThrowDamaged(path_, name_,
                   fmt::format("unknown dtype \"{}\", expected one of {}", Printable(value, 40),
                               KnownDTypes()));
    }
    return true;
  }

  bool start_object(size_t) override {
    if (place_ == Place::kOutside) {
      place_ = Place::kHeader;
    } else if (place_ == Place::kHeader) {
      place_ = name_ == kMetadataKey ? Place::kMetadata : Place::kTensor;
      fields_.clear();
      dtype_.reset();
      shape_.reset();
      offset_count_ = -1;
    } else {
      Unexpected("an object");
    }
    return true;
  }

  bool key(std::string& value) override {
    if (place_ == Place::kHeader) {
      if (!names_.insert(value).second) {
        ThrowDamaged(path_, value, "named twice in the header");
      }
      name_ = std::move(value);
      return true;
    }
    if (!fields_.insert(value).second) {
      ThrowDamaged(path_, name_, fmt::format("key \"{}\" given twice", Printable(value)));
    }
    if (place_ == Place::kTensor && value != "dtype" && value != "shape" &&
        value != "data_offsets") {
      ThrowDamaged(path_, name_,
                   fmt::format("unknown key \"{}\", expected dtype, shape and data_offsets",
                               Printable(value)));
    }
    field_ = std::move(value);
    return true;
  }

  bool end_object() override {
    if (place_ == Place::kTensor) FinishTensor();
    place_ = place_ == Place::kHeader ? Place::kOutside : Place::kHeader;
    return true;
  }

  bool start_array(size_t) override {
    if (place_ == Place::kTensor && field_ == "shape") {
      place_ = Place::kShape;
      shape_.emplace();
    } else if (place_ == Place::kTensor && field_ == "data_offsets") {
      place_ = Place::kOffsets;
      offset_count_ = 0;
    } else {
      Unexpected("an array");
    }
    return true;
  }

  bool end_array() override {
    if (place_ == Place::kOffsets && offset_count_ != 2) {
      ThrowDamaged(path_, name_,
                   fmt::format("data_offsets: expected 2 numbers, found {}", offset_count_));
    }
    place_ = Place::kTensor;
    return true;
  }

  bool parse_error(size_t position, const std::string&, const Json::exception& error) override {
    ThrowDamaged(path_, fmt::format("header is not valid JSON at byte {} of it: {}", position,
                                    PrintableJsonError(error.what())));
  }

 private:
  enum class Place { kOutside, kHeader, kMetadata, kTensor, kShape, kOffsets };

  [[noreturn]] void Unexpected(const std::string& found) const {
    switch (place_) {
      case Place::kOutside:
        ThrowDamaged(path_, fmt::format("header is not a JSON object but {}", found));
      case Place::kHeader:
        ThrowDamaged(path_, name_, fmt::format("expected an object, found {}", found));
      case Place::kMetadata:
        ThrowDamaged(path_, fmt::format("{}: \"{}\": expected a string, found {}", kMetadataKey,
                                        Printable(field_), found));
      case Place::kTensor:
        ThrowDamaged(path_, name_,
                     fmt::format("{}: expected {}, found {}", field_,
                                 field_ == "dtype" ? "a string" : "an array", found));
      case Place::kShape:
      case Place::kOffsets:
        break;
    }
    ThrowDamaged(path_, name_,
                 fmt::format("{}: expected unsigned integers, found {}", field_, found));
  }

  void FinishTensor() {
    for (const char* required : {"dtype", "shape", "data_offsets"}) {
      if (!fields_.contains(required)) {
        ThrowDamaged(path_, name_, fmt::format("has no {}", required));
      }
    }
    RawEntry raw{.entry = {.name = name_, .dtype = *dtype_, .shape = std::move(*shape_)},
                 .begin = begin_,
                 .end = end_};
    CheckSize(raw);
    raw.entry.bytes = end_ - begin_;
    entries_.push_back(std::move(raw));
  }

  void CheckSize(const RawEntry& raw) const {
    if (raw.end < raw.begin) {
      ThrowDamaged(path_, name_,
                   fmt::format("data range [{}, {}) ends before it starts", raw.begin, raw.end));
    }
    const std::optional<int64_t> count = ElementCount(raw.entry.shape);
    uint64_t bytes = 0;
    if (!count ||
        __builtin_mul_overflow(static_cast<uint64_t>(*count),
                               static_cast<uint64_t>(ByteSize(raw.entry.dtype)), &bytes)) {
      ThrowDamaged(path_, name_,
                   fmt::format("the size of shape {} overflows 64 bits",
                               Printable(ToString(raw.entry.shape))));
    }
    if (bytes != raw.end - raw.begin) {
      ThrowDamaged(
          path_, name_,
          fmt::format("{} {} takes {} bytes, but its data range [{}, {}) has {}",
                      SafetensorsName(raw.entry.dtype), Printable(ToString(raw.entry.shape)), bytes,
                      raw.begin, raw.end, raw.end - raw.begin));
    }
  }

  const std::string& path_;
  Place place_ = Place::kOutside;
  std::unordered_set<std::string> names_;   // keys of the header so far
  std::unordered_set<std::string> fields_;  // keys of the current entry so far
  std::string name_;                        // of the current entry
  std::string field_;                       // key of the current value within it
  std::optional<DType> dtype_;
  std::optional<Shape> shape_;
  int offset_count_ = -1;
  uint64_t begin_ = 0;
  uint64_t end_ = 0;
  std::vector<RawEntry> entries_;
};

// Data ranges must tile the data section: sorted by offset, each begins where the one before ended.
void CheckCoverage(const std::string& path, const std::vector<RawEntry>& sorted,
                   uint64_t data_start, uint64_t data_size) {
  const RawEntry* first_past_end = nullptr;
  uint64_t needed = 0;
  for (const RawEntry& raw : sorted) {
    needed = std::max(needed, raw.end);
    if (raw.end > data_size && first_past_end == nullptr) first_past_end = &raw;
  }
  if (first_past_end != nullptr) {
    const uint64_t most = std::numeric_limits<uint64_t>::max() - data_start;
    ThrowDamaged(
        path, first_past_end->entry.name,
        fmt::format("data range [{}, {}) lies past the end of the data section of {} bytes: the "
                    "file has {} bytes, its header asks for {}{}",
                    first_past_end->begin, first_past_end->end, data_size, data_start + data_size,
                    data_start + std::min(needed, most), needed > most ? " and more" : ""));
  }
  uint64_t covered = 0;
  const RawEntry* before = nullptr;
  for (const RawEntry& raw : sorted) {
    if (raw.begin < covered) {
      ThrowDamaged(path, raw.entry.name,
                   fmt::format("data range [{}, {}) overlaps that of {}, [{}, {})", raw.begin,
                               raw.end, Printable(before->entry.name), before->begin, before->end));
    }
    if (raw.begin > covered) {
      ThrowDamaged(
          path, raw.entry.name,
          fmt::format("data range [{}, {}) leaves a hole of {} bytes before it, expected to start "
                      "at {}",
                      raw.begin, raw.end, raw.begin - covered, covered));
    }
    covered = raw.end;
    before = &raw;
  }
  if (covered != data_size) {
    ThrowDamaged(path,
                 fmt::format("{} bytes after the last tensor: the file has {} bytes, its header "
                             "describes {}",
                             data_size - covered, data_start + data_size, data_start + covered));
  }
}

}  // namespace

std::vector<TensorEntry> ParseSafetensorsHeader(const std::string& path, std::string_view header,
                                                uint64_t file_size) {
  // The format asks for '{' as the first byte (so no byte order mark or white space), and the
  // parser would take a zero byte for the end of its input.
  if (!header.starts_with('{')) {
    const std::string found =
        header.empty() ? "nothing" : fmt::format("'{}'", Printable(header.substr(0, 1)));
    ThrowDamaged(path,
                 fmt::format("header is not a JSON object: expected '{{' first, found {}", found));
  }
  if (const size_t zero = header.find('\0'); zero != std::string_view::npos) {
    ThrowDamaged(path,
                 fmt::format("header is not valid JSON: zero byte at byte {} of it", zero + 1));
  }
  HeaderHandler handler(path);
  Json::sax_parse(header, &handler);
  std::vector<RawEntry> raw = handler.Take();
  std::sort(raw.begin(), raw.end(), [](const RawEntry& a, const RawEntry& b) {
    return std::tie(a.begin, a.end, a.entry.name) < std::tie(b.begin, b.end, b.entry.name);
  });
  const uint64_t data_start = kSafetensorsLengthBytes + header.size();
  CheckCoverage(path, raw, data_start, file_size - data_start);
  std::vector<TensorEntry> tensors;
  tensors.reserve(raw.size());
  for (RawEntry& entry : raw) {
    entry.entry.offset = data_start + entry.begin;
    tensors.push_back(std::move(entry.entry));
  }
  return tensors;
}

}  // namespace octavo
