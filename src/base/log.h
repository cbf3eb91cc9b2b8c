// Sends a message to the sink that the program set with SetLogSink (include/octavo/log.h).
#pragma once

#include <octavo/log.h>

#include <string_view>

namespace octavo {

void Log(LogLevel level, std::string_view message);
inline void LogInfo(std::string_view message) { Log(LogLevel::kInfo, message); }
inline void LogWarning(std::string_view message) { Log(LogLevel::kWarning, message); }

}  // namespace octavo
