// The table of schemes: a new one is a file in schemes/, its maker in schemes.h and a line here.
#include <fmt/format.h>
#include <octavo/error.h>

#include "quant/scheme.h"
#include "quant/schemes/schemes.h"

namespace octavo {
namespace {

struct SchemeEntry {
  std::string_view name;
  std::string_view alias;  // "" without one
  std::unique_ptr<const QuantScheme> (*make)();
};

constexpr SchemeEntry kSchemes[] = {
    {"int8", "tpu_int8", MakeInt8Scheme},
};

constexpr std::string_view kNone = "none";

}  // namespace

std::unique_ptr<const QuantScheme> MakeScheme(std::string_view name) {
  if (name == kNone) return nullptr;
  for (const SchemeEntry& entry : kSchemes) {
    if (name == entry.name || (!entry.alias.empty() && name == entry.alias)) return entry.make();
  }
  std::string known;
  for (const std::string& scheme : SchemeNames()) known += (known.empty() ? "" : ", ") + scheme;
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("unknown quantization scheme \"{}\", expected one of: {}", name, known));
}

std::vector<std::string> SchemeNames() {
  std::vector<std::string> names{std::string(kNone)};
  for (const SchemeEntry& entry : kSchemes) {
    names.emplace_back(entry.name);
    if (!entry.alias.empty()) names.emplace_back(entry.alias);
  }
  return names;
}

}  // namespace octavo
