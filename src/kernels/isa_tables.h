// The table of each instruction set, and what a CPU needs to run it. Tables are constants: finding
// out what this CPU supports runs no code that was compiled for another one.
#pragma once

#include "kernels/kernel_table.h"

namespace octavo {

extern const KernelTable kScalarKernels;
#if defined(OCTAVO_KERNELS_X86)
extern const KernelTable kAvx2Kernels;
extern const KernelTable kAvx512Kernels;
extern const KernelTable kAvx512VnniKernels;

// Defined in dispatch.cc, which is compiled for every CPU.
bool SupportsAvx2(const CpuFeatures& features);
bool SupportsAvx512(const CpuFeatures& features);
bool SupportsAvx512Vnni(const CpuFeatures& features);
#endif

}  // namespace octavo
