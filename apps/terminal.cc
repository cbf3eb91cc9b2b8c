#include "apps/terminal.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <octavo/error.h>
#include <octavo/log.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "apps/format.h"

namespace octavo {
namespace {

volatile std::sig_atomic_t interrupt_count = 0;
// Holds a byte per interrupt, so that waiting for input ends whichever thread took the signal and
// however shortly before the wait it came. -1 while there is no InterruptGuard.
int interrupt_pipe[2] = {-1, -1};

extern "C" void OnInterrupt(int) {
  const int error = errno;
  interrupt_count = interrupt_count + 1;
  if (write(interrupt_pipe[1], "", 1) < 0) {
    // Full: there is something to be read already.
  }
  errno = error;
  if (interrupt_count > 1) {
    std::signal(SIGINT, SIG_DFL);
    std::raise(SIGINT);
  }
}

// Standard error may be closed or full; there is nobody to tell.
void WriteToError(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    text.remove_prefix(static_cast<size_t>(written));
  }
}

// Reads once; 0 at the end of input, and after an interrupt that a guard waits for.
size_t ReadSome(char* buffer, size_t bytes) {
  while (true) {
    std::array<pollfd, 2> wanted = {{{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0},
                                     {.fd = interrupt_pipe[0], .events = POLLIN, .revents = 0}}};
    if (poll(wanted.data(), wanted.size(), -1) < 0 && errno == EINTR) continue;
    if (wanted[1].revents != 0) return 0;
    const ssize_t got = read(STDIN_FILENO, buffer, bytes);
    if (got >= 0) return static_cast<size_t>(got);
    if (errno == EINTR) continue;
    throw Error(ErrorCode::kUnavailable,
                fmt::format("standard input cannot be read: {}", std::strerror(errno)));
  }
}

}  // namespace

void WriteOutput(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(STDOUT_FILENO, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EPIPE) throw OutputClosed{};
    if (written < 0) {
      throw Error(ErrorCode::kUnavailable,
                  fmt::format("standard output cannot be written: {}", std::strerror(errno)));
    }
    text.remove_prefix(static_cast<size_t>(written));
  }
}

void WriteError(std::string_view message) {
  WriteToError(fmt::format("octavo: error: {}\n", message));
}
void WriteMessage(std::string_view message) { WriteToError(fmt::format("{}\n", message)); }

bool OutputIsTerminal() { return isatty(STDOUT_FILENO) == 1; }
bool InputIsTerminal() { return isatty(STDIN_FILENO) == 1; }

std::string ReadInput() {
  std::string text;
  std::array<char, 65536> buffer;
  while (const size_t got = ReadSome(buffer.data(), buffer.size())) {
    text.append(buffer.data(), got);
  }
  if (text.ends_with('\n')) text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
  return text;
}

std::optional<std::string> ReadInputLine() {
  static std::string pending;  // read but not yet handed out
  while (true) {
    if (const size_t end = pending.find('\n'); end != std::string::npos) {
      std::string line = pending.substr(0, end);
      pending.erase(0, end + 1);
      if (line.ends_with('\r')) line.pop_back();
      return line;
    }
    std::array<char, 4096> buffer;
    const size_t got = ReadSome(buffer.data(), buffer.size());
    if (got == 0) break;
    pending.append(buffer.data(), got);
  }
  if (pending.empty() || interrupt_count > 0) return std::nullopt;
  return std::exchange(pending, {});
}

void ShowLibraryMessages(bool quiet) {
  SetLogSink([quiet](LogLevel level, std::string_view message) {
    if (level == LogLevel::kWarning) WriteToError(fmt::format("warning: {}\n", message));
    if (level == LogLevel::kInfo && !quiet) WriteMessage(message);
  });
}

std::function<void(uint64_t, uint64_t, double)> ProgressLine(bool quiet) {
  if (quiet || isatty(STDERR_FILENO) != 1) return {};
  return [](uint64_t read, uint64_t total, double seconds) {
    const double done = static_cast<double>(read);
    const double rate = seconds > 0 ? done / seconds : 0;
    std::string line = fmt::format("\rloading: {} of {}, {}/s", FormatSize(done),
                                   FormatSize(static_cast<double>(total)), FormatSize(rate));
    if (read < total && rate > 0) {
      line += fmt::format(", {:.0f} s left", static_cast<double>(total - read) / rate);
    }
    line += read < total ? "\x1b[K" : fmt::format(" in {:.1f} s\x1b[K\n", seconds);
    WriteToError(line);
  };
}

InterruptGuard::InterruptGuard() {
  if (pipe2(interrupt_pipe, O_CLOEXEC | O_NONBLOCK) != 0) {
    throw Error(ErrorCode::kUnavailable, fmt::format("no pipe: {}", std::strerror(errno)));
  }
  interrupt_count = 0;
  struct sigaction action = {};
  action.sa_flags = SA_RESTART;
  action.sa_handler = OnInterrupt;
  sigaction(SIGINT, &action, nullptr);
}

InterruptGuard::~InterruptGuard() {
  std::signal(SIGINT, SIG_DFL);
  for (int& end : interrupt_pipe) close(std::exchange(end, -1));
  interrupt_count = 0;
}

bool InterruptGuard::interrupted() const { return interrupt_count > 0; }
void InterruptGuard::Reset() {
  char bytes[16];
  while (read(interrupt_pipe[0], bytes, sizeof bytes) > 0) {
  }
  interrupt_count = 0;
}

}  // namespace octavo
