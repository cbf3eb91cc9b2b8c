#include "apps/exit_status.h"

#include <cstdio>
#include <new>
#include <string>

#include "apps/terminal.h"

namespace octavo {

int ExitStatusOf(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return kExitUsage;
    case ErrorCode::kNotFound:
      return 3;
    case ErrorCode::kDataLoss:
      return 4;
    case ErrorCode::kUnimplemented:
      return 5;
    case ErrorCode::kResourceExhausted:
      return 6;
    case ErrorCode::kUnavailable:
      return 7;
    case ErrorCode::kCancelled:
      return kExitInterrupted;
    case ErrorCode::kInternal:
      return 70;
  }
  return 70;
}

int RunReportingErrors(const std::function<int()>& action) {
  try {
    return action();
  } catch (const OutputClosed&) {
    return kExitSuccess;  // whoever read our output has seen enough
  } catch (const Error& error) {
    WriteError(error.what());
    return ExitStatusOf(error.code());
  } catch (const std::bad_alloc&) {
    WriteError("out of memory");
    return ExitStatusOf(ErrorCode::kResourceExhausted);
  } catch (const std::exception& error) {
    WriteError(std::string("internal error: ") + error.what());
    return ExitStatusOf(ErrorCode::kInternal);
  }
}

}  // namespace octavo
