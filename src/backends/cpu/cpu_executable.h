// The CPU backend: kernels of its own over packed weights and a paged KV cache.
#pragma once

#include <memory>

#include "backends/backend.h"
#include "kernels/kernel_table.h"

namespace octavo {

// With the kernels of this host (HostKernels).
std::unique_ptr<Executable> MakeCpuExecutable(const Graph& graph, const CompileOptions& options);
// With the kernels of `kernels`, which has no null entries.
std::unique_ptr<Executable> MakeCpuExecutable(const Graph& graph, const CompileOptions& options,
                                              const KernelTable& kernels);

}  // namespace octavo
