#include <fmt/format.h>
#include <octavo/error.h>

#include <array>
#include <string>

#include "backends/backend.h"
#include "backends/cpu/cpu_executable.h"
#include "backends/reference/reference_executable.h"

namespace octavo {
namespace {

struct Backend {
  const char* name;
  std::unique_ptr<Executable> (*compile)(const Graph& graph, const CompileOptions& options);
};

constexpr std::array kBackends = {
    Backend{"cpu", MakeCpuExecutable},
    Backend{"reference", MakeReferenceExecutable},
};

const Backend& Find(std::string_view name) {
  std::string known;
  for (const Backend& backend : kBackends) {
    if (name == backend.name) return backend;
    if (!known.empty()) known += ", ";
    known += backend.name;
  }
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("backend: expected one of {}, found \"{}\"", known, name));
}

}  // namespace

std::vector<std::string> BackendNames() {
  std::vector<std::string> names;
  for (const Backend& backend : kBackends) names.emplace_back(backend.name);
  return names;
}

void CheckBackendName(std::string_view name) { Find(name); }

std::unique_ptr<Executable> CompileGraph(std::string_view name, const Graph& graph,
                                         const CompileOptions& options) {
  return Find(name).compile(graph, options);
}

}  // namespace octavo
