// Chooses kernels at run time.
#pragma once

#include <span>
#include <string_view>

#include "kernels/kernel_table.h"

namespace octavo {

// Every table compiled into this binary, best first; the last is "scalar".
std::span<const KernelTable* const> AllKernelTables();

// The tables that this CPU supports, from `isa` down, merged into one without null entries. Throws
// kInvalidArgument, listing what would do, when `isa` is unknown or this CPU does not support it.
KernelTable ResolveKernels(std::string_view isa);

// The kernels of this process: the best that the CPU supports, capped by the environment variable
// OCTAVO_ISA. Throws as ResolveKernels does.
const KernelTable& HostKernels();

}  // namespace octavo
