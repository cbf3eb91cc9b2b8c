// Standard output, messages and progress on standard error, and Ctrl-C.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace octavo {

// Thrown where the reader of standard output has closed it: no error, the program just ends.
struct OutputClosed {};

// Writes to standard output at once. Throws OutputClosed, or kUnavailable when it cannot be
// written.
void WriteOutput(std::string_view text);

// "octavo: error: <message>" on standard error.
void WriteError(std::string_view message);
void WriteMessage(std::string_view message);  // a line on standard error

bool OutputIsTerminal();
bool InputIsTerminal();

// All of standard input, without one newline at its end.
std::string ReadInput();
// One line of standard input, without its newline; nullopt at its end or after Ctrl-C.
std::optional<std::string> ReadInputLine();

// Sends the library's messages to standard error: warnings as "warning: ...", and the others too
// unless `quiet`.
void ShowLibraryMessages(bool quiet);

// Shows how far loading is, in one line of standard error that is rewritten; empty where standard
// error is not a terminal, or `quiet`.
std::function<void(uint64_t bytes_read, uint64_t bytes_total, double seconds)> ProgressLine(
    bool quiet);

// While it lives, the first Ctrl-C sets a flag instead of ending the program; a second one ends it.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;
  bool interrupted() const;
  void Reset();
};

}  // namespace octavo
