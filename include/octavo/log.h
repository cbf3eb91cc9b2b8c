// The library never prints: messages go to a sink that the program sets. Without one they are
// dropped.
#pragma once

#include <functional>
#include <string_view>

namespace octavo {

enum class LogLevel { kDebug, kInfo, kWarning };

using LogSink = std::function<void(LogLevel, std::string_view message)>;

// Replaces the sink of the process. Thread-safe; the sink may be called from any thread, one call
// at a time.
void SetLogSink(LogSink sink);

}  // namespace octavo
