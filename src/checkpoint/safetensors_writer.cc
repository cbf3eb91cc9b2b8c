#include <fcntl.h>
#include <fmt/format.h>
#include <octavo/error.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <unordered_set>
#include <utility>

#include "checkpoint/printable.h"
#include "checkpoint/safetensors_file.h"

namespace octavo {
namespace {

[[noreturn]] void ThrowCannotWrite(const std::string& path, int error) {
  throw Error(ErrorCode::kUnavailable,
              fmt::format("{}: cannot be written: {}", path, std::strerror(error)));
}

// A new file that takes the name `path` when Commit is called, and vanishes otherwise.
class PendingFile {
 public:
  explicit PendingFile(const std::string& path) : path_(path), target_(path) {
    struct stat status;
    if (stat(path.c_str(), &status) == 0) {
      // A device or a pipe must not be replaced by a file.
      if (!S_ISREG(status.st_mode)) {
        throw Error(
            ErrorCode::kUnavailable,
            fmt::format("{}: cannot be written: {}", path,
                        S_ISDIR(status.st_mode) ? "it is a directory" : "not a regular file"));
      }
      if (char* real = realpath(path.c_str(), nullptr)) {  // a link stays one
        target_ = real;
        std::free(real);
      }
    }
    static std::atomic<int> counter{0};
    temporary_ = fmt::format("{}.{}.{}.tmp", target_, getpid(), counter++);
    descriptor_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor_ < 0) ThrowCannotWrite(path_, errno);
  }
  ~PendingFile() {
    if (descriptor_ >= 0) close(descriptor_);
    if (!committed_) unlink(temporary_.c_str());
  }
  PendingFile(const PendingFile&) = delete;
  PendingFile& operator=(const PendingFile&) = delete;

  void Write(const void* data, size_t bytes) {
    const auto* next = static_cast<const char*>(data);
    while (bytes > 0) {
      const ssize_t written = write(descriptor_, next, bytes);
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) ThrowCannotWrite(path_, errno);
      next += written;
      bytes -= static_cast<size_t>(written);
    }
  }

  void Commit() {
    if (fsync(descriptor_) != 0 && errno != EINVAL) ThrowCannotWrite(path_, errno);
    if (close(std::exchange(descriptor_, -1)) != 0) ThrowCannotWrite(path_, errno);
    if (rename(temporary_.c_str(), target_.c_str()) != 0) ThrowCannotWrite(path_, errno);
    committed_ = true;
  }

 private:
  std::string path_;    // as the caller wrote it, for messages
  std::string target_;  // with links followed
  std::string temporary_;
  int descriptor_ = -1;
  bool committed_ = false;
};

void CheckTensors(const std::string& path, const std::vector<TensorToWrite>& tensors) {
  std::unordered_set<std::string_view> names;
  for (const TensorToWrite& tensor : tensors) {
    const auto fail = [&](const std::string& message) {
      return Error(ErrorCode::kInternal, fmt::format("{}: tensor {} to write: {}", path,
                                                     Printable(tensor.name), message));
    };
    if (tensor.name == "__metadata__") throw fail("the name is reserved");
    if (!names.insert(tensor.name).second) throw fail("given twice");
    const auto count = ElementCount(tensor.shape);
    if (!count || static_cast<uint64_t>(*count) * static_cast<uint64_t>(ByteSize(tensor.dtype)) !=
                      tensor.data.size()) {
      throw fail(fmt::format("{} {} does not take {} bytes", SafetensorsName(tensor.dtype),
                             ToString(tensor.shape), tensor.data.size()));
    }
  }
}

}  // namespace

void WriteSafetensors(const std::string& path, const std::vector<TensorToWrite>& tensors) {
  CheckTensors(path, tensors);
  // Wide elements first, as the reference implementation does: every tensor is aligned to its
  // element.
  std::vector<const TensorToWrite*> order;
  for (const TensorToWrite& tensor : tensors) order.push_back(&tensor);
  std::stable_sort(order.begin(), order.end(), [](const TensorToWrite* a, const TensorToWrite* b) {
    return ByteSize(a->dtype) > ByteSize(b->dtype);
  });
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  uint64_t offset = 0;
  for (const TensorToWrite* tensor : order) {
    header[tensor->name] = {{"dtype", SafetensorsName(tensor->dtype)},
                            {"shape", tensor->shape},
                            {"data_offsets", {offset, offset + tensor->data.size()}}};
    offset += tensor->data.size();
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const nlohmann::json::exception& error) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("{}: a tensor name cannot be written: {}",
                                                         path, PrintableJsonError(error.what())));
  }
  text.resize((text.size() + 7) / 8 * 8, ' ');

  PendingFile file(path);
  const uint64_t length = text.size();
  unsigned char prefix[8];
  for (int i = 0; i < 8; ++i) prefix[i] = static_cast<unsigned char>(length >> (8 * i));
  file.Write(prefix, sizeof prefix);
  file.Write(text.data(), text.size());
  for (const TensorToWrite* tensor : order) file.Write(tensor->data.data(), tensor->data.size());
  file.Commit();
}

}  // namespace octavo
