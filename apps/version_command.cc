#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "apps/commands.h"
#include "apps/exit_status.h"
#include "apps/format.h"
#include "apps/terminal.h"
#include "backends/backend.h"
#include "base/cpu_features.h"
#include "base/thread_pool.h"
#include "kernels/dispatch.h"
#include "models/registry.h"
#include "quant/scheme.h"

namespace octavo {
namespace {

int ShowVersion() {
  std::vector<std::string> isas;
  for (const KernelTable* table : AllKernelTables()) {
    isas.push_back(fmt::format("{}{}", table->isa,
                               table->supported(HostCpuFeatures()) ? "" : " (not on this CPU)"));
  }
  const std::string& cpu = HostCpuFeatures().model;
  WriteOutput(
      fmt::format("octavo {}\n"
                  "cpu: {}, {} usable CPUs\n"
                  "instruction sets: {}; in use: {}\n"
                  "backends: {}\n"
                  "quantization: {}\n"
                  "architectures: {}\n",
                  OCTAVO_VERSION, cpu.empty() ? "unknown" : cpu, UsableCpuCount(), JoinNames(isas),
                  HostKernels().isa, JoinNames(BackendNames()), JoinNames(SchemeNames()),
                  JoinNames(SupportedArchitectures())));
  return kExitSuccess;
}

}  // namespace

void AddVersionCommand(CLI::App& app, Action& action) {
  CLI::App* command =
      app.add_subcommand("version", "Version, instruction sets, and what is supported");
  command->callback([&action] { action = ShowVersion; });
}

}  // namespace octavo
