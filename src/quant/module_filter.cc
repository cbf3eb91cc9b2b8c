// g++ 12 warns within <regex> when sanitizers are on (GCC bug 105562).
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#include "quant/module_filter.h"

#include <fmt/format.h>
#include <octavo/error.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <regex>

namespace octavo {
namespace {

constexpr std::string_view kPatternPrefix = "re:";
constexpr size_t kMaxPatternLength = 256;
constexpr int64_t kMaxRepetitions = 64;

[[noreturn]] void ThrowBadEntry(std::string_view entry, std::string_view problem) {
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("module pattern \"{}\": {}", entry, problem));
}

// A count like {3,64} is unrolled into that many copies, nested ones multiply, and the matcher
// recurses once per state: the product of all counts bounds time, memory and stack.
void CheckRepetitions(std::string_view entry, std::string_view pattern) {
  int64_t product = 1;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] == '\\') {
      ++i;
      continue;
    }
    if (pattern[i] != '{') continue;
    int64_t count = 0, largest = 1;
    for (++i; i < pattern.size() && pattern[i] != '}'; ++i) {
      const bool digit = pattern[i] >= '0' && pattern[i] <= '9';
      count = digit ? std::min<int64_t>(count * 10 + (pattern[i] - '0'), kMaxRepetitions + 1) : 0;
      largest = std::max(largest, count);
    }
    product *= largest;
    if (product > kMaxRepetitions) {
      ThrowBadEntry(
          entry, fmt::format("the product of its {{counts}} is larger than {}", kMaxRepetitions));
    }
  }
}

std::regex Compile(std::string_view entry) {
  const std::string_view pattern = entry.substr(kPatternPrefix.size());
  if (pattern.empty()) ThrowBadEntry(entry, "the pattern is empty");
  if (pattern.size() > kMaxPatternLength) {
    ThrowBadEntry(entry, fmt::format("{} characters, expected at most {}", pattern.size(),
                                     kMaxPatternLength));
  }
  CheckRepetitions(entry, pattern);
  auto flags = std::regex::ECMAScript | std::regex::optimize;
#ifdef __GLIBCXX__
  // Simulates all states at once instead of backtracking: (a+)+$ takes linear time, and a back
  // reference is an error.
  flags |= std::regex_constants::__polynomial;
#endif
  try {
    return std::regex(pattern.begin(), pattern.end(), flags);
  } catch (const std::regex_error& error) {
    ThrowBadEntry(entry,
                  fmt::format("not a regular expression that can be used: {}", error.what()));
  }
}

// "a.b.weight" -> "a.b"; a name without a dot has no module.
std::string_view ModuleOf(std::string_view tensor_name) {
  const size_t dot = tensor_name.rfind('.');
  return dot == std::string_view::npos ? std::string_view() : tensor_name.substr(0, dot);
}

}  // namespace

struct ModuleFilter::Entry {
  std::string text;                 // as the user wrote it
  std::optional<std::regex> regex;  // of an entry that begins with re:
  bool used = false;

  bool Matches(std::string_view name) const {
    if (!regex) return name == text || ModuleOf(name) == text;
    return std::regex_search(name.begin(), name.end(), *regex,
                             std::regex_constants::match_continuous);
  }
};

ModuleFilter::ModuleFilter(const std::vector<std::string>& entries) {
  for (const std::string& text : entries) {
    if (text.empty()) ThrowBadEntry(text, "a name or re:PATTERN was expected");
    Entry& entry = entries_.emplace_back();
    entry.text = text;
    if (text.starts_with(kPatternPrefix)) entry.regex = Compile(text);
  }
}

ModuleFilter::~ModuleFilter() = default;
ModuleFilter::ModuleFilter(ModuleFilter&&) noexcept = default;
ModuleFilter& ModuleFilter::operator=(ModuleFilter&&) noexcept = default;

const std::string* ModuleFilter::Match(std::string_view tensor_name) {
  const std::string* first = nullptr;
  for (Entry& entry : entries_) {
    if (!entry.Matches(tensor_name)) continue;
    entry.used = true;
    if (first == nullptr) first = &entry.text;
  }
  return first;
}

std::vector<std::string> ModuleFilter::Unused() const {
  std::vector<std::string> unused;
  for (const Entry& entry : entries_) {
    if (!entry.used) unused.push_back(entry.text);
  }
  return unused;
}

}  // namespace octavo
