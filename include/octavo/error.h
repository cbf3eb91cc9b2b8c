// The one exception type of Octavo. Everything that a file, a flag or a request can cause is
// reported with it; its message names the file, tensor or field, what was expected and what was
// found.
#pragma once

#include <stdexcept>
#include <string>

namespace octavo {

enum class ErrorCode {
  kInvalidArgument,    // a flag, request or configuration value cannot be used
  kNotFound,           // a file, tensor or model is missing
  kDataLoss,           // a file is damaged or contradicts itself
  kUnimplemented,      // understood, but Octavo does not do it
  kResourceExhausted,  // memory, KV cache or another limit
  kUnavailable,        // a device, plugin or service cannot be reached
  kCancelled,          // stopped by the caller
  kInternal,           // a bug of ours
};

// "invalid_argument", "not_found", ...
const char* ErrorCodeName(ErrorCode code) noexcept;

class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

}  // namespace octavo
