#include "checkpoint/printable.h"

#include <fmt/format.h>

namespace octavo {
namespace {

// The length of the well-formed UTF-8 sequence of a printable character at the start of `text`, 0
// when there is none (Unicode 15, table 3-7; control characters of Latin-1 count as not printable).
size_t PrintableSequence(std::string_view text) {
  const auto byte = [&](size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u;
  };
  const auto follows = [&](size_t i) { return (byte(i) & 0xc0u) == 0x80u; };
  const unsigned first = byte(0);
  if (first < 0x80) return first >= 0x20 && first != 0x7f ? 1 : 0;
  if (first >= 0xc2 && first <= 0xdf)
    return follows(1) && !(first == 0xc2 && byte(1) < 0xa0) ? 2 : 0;
  if (first >= 0xe0 && first <= 0xef) {
    const bool range = (first != 0xe0 || byte(1) >= 0xa0) && (first != 0xed || byte(1) < 0xa0);
    return range && follows(1) && follows(2) ? 3 : 0;
  }
  if (first >= 0xf0 && first <= 0xf4) {
    const bool range = (first != 0xf0 || byte(1) >= 0x90) && (first != 0xf4 || byte(1) < 0x90);
    return range && follows(1) && follows(2) && follows(3) ? 4 : 0;
  }
  return 0;
}

}  // namespace

std::string Printable(std::string_view text, size_t limit) {
  std::string result;
  size_t i = 0;
  while (i < text.size() && result.size() < limit) {
    const size_t length = PrintableSequence(text.substr(i));
    if (length == 0) {
      result += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[i++]));
    } else {
      result += text.substr(i, length);
      i += length;
    }
  }
  if (i < text.size()) result += fmt::format("... ({} bytes)", text.size());
  return result;
}

std::string PrintableJsonError(std::string_view what) {
  if (what.starts_with('[')) {
    const size_t end = what.find("] ");
    if (end != std::string_view::npos) what.remove_prefix(end + 2);
  }
  return Printable(what.substr(0, what.find("; last read: ")));
}

}  // namespace octavo
