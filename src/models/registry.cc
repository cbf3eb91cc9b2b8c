#include "models/registry.h"

#include <fmt/format.h>
#include <octavo/error.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <string_view>

#include "checkpoint/printable.h"
#include "models/architectures.h"

namespace octavo {
namespace {

struct Architecture {
  const char* name;  // as config.json has it under "architectures"
  Graph (*build)(const HfConfig& config);
};

constexpr std::array kArchitectures = {
    Architecture{"LlamaForCausalLM", BuildLlama},
    Architecture{"MistralForCausalLM", BuildMistral},
    Architecture{"Qwen2ForCausalLM", BuildQwen2},
    Architecture{"Qwen3ForCausalLM", BuildQwen3},
};

// Levenshtein's distance: the fewest insertions, deletions and replacements from `a` to `b`.
size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() +
                          1);  // distances of the prefix of `a` so far to every prefix of `b`
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0]++;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::vector<std::string> SupportedArchitectures() {
  std::vector<std::string> names;
  for (const Architecture& architecture : kArchitectures) names.emplace_back(architecture.name);
  return names;
}

Graph BuildModel(const HfConfig& config) {
  const std::vector<std::string> names = config.StringList("architectures");
  if (names.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{}: architectures: expected the name of a model class, found nothing",
                            config.path()));
  }
  for (const Architecture& architecture : kArchitectures) {
    if (names.front() == architecture.name) return architecture.build(config);
  }
  // A hostile name could be as long as the file; distances and the message need only its beginning.
  const std::string name = names.front().substr(0, 100);
  std::vector<std::string> supported = SupportedArchitectures();
  std::stable_sort(supported.begin(), supported.end(), [&](const auto& a, const auto& b) {
    return EditDistance(name, a) < EditDistance(name, b);
  });
  std::string list;
  for (const std::string& candidate : supported) {
    if (!list.empty()) list += ", ";
    list += candidate;
  }
  throw Error(ErrorCode::kUnimplemented,
              fmt::format("{}: the architecture {} is not supported; supported are {}",
                          config.path(), Printable(name), list));
}

}  // namespace octavo
