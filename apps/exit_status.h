// Exit statuses of the program.
#pragma once

#include <octavo/error.h>

#include <functional>

namespace octavo {

inline constexpr int kExitSuccess = 0;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitInterrupted = 130;  // as a shell reports SIGINT

int ExitStatusOf(ErrorCode code) noexcept;

// Runs `action`; what it throws is reported on standard error ("octavo: error: ...") and becomes a
// status.
int RunReportingErrors(const std::function<int()>& action);

}  // namespace octavo
