#include "base/log.h"

#include <mutex>
#include <utility>

namespace octavo {
namespace {

std::mutex& SinkMutex() {
  static std::mutex mutex;
  return mutex;
}

LogSink& Sink() {
  static LogSink sink;
  return sink;
}

}  // namespace

void SetLogSink(LogSink sink) {
  std::lock_guard lock(SinkMutex());
  Sink() = std::move(sink);
}

void Log(LogLevel level, std::string_view message) {
  std::lock_guard lock(SinkMutex());
  if (Sink()) Sink()(level, message);
}

}  // namespace octavo
