// What this CPU and operating system can run, found once (CPUID and XGETBV on x86-64).
#pragma once

#include <string>

namespace octavo {

struct CpuFeatures {
  bool avx2_fma_f16c = false;
  bool avx512 = false;  // F, BW, VL, DQ, with the operating system saving the registers
  bool avx512_vnni = false;
  bool avx512_bf16 = false;
  std::string model;  // as the CPU names itself, "" where unknown
};

const CpuFeatures& HostCpuFeatures();

}  // namespace octavo
