#include "base/cpu_features.h"

#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace octavo {
namespace {

#if defined(__x86_64__)
uint64_t ReadXcr0() {
  uint32_t low = 0;
  uint32_t high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return uint64_t{high} << 32 | low;
}

std::string CpuModelName() {
  uint32_t registers[12] = {};
  uint32_t* r = registers;
  for (uint32_t leaf = 0x80000002u; leaf <= 0x80000004u; ++leaf, r += 4) {
    if (!__get_cpuid(leaf, &r[0], &r[1], &r[2], &r[3])) return "";
  }
  char name[sizeof registers + 1] = {};
  std::memcpy(name, registers, sizeof registers);
  std::string text(name);
  const size_t begin = text.find_first_not_of(' ');
  const size_t end = text.find_last_not_of(' ');
  return begin == std::string::npos ? "" : text.substr(begin, end - begin + 1);
}

CpuFeatures Detect() {
  CpuFeatures features;
  features.model = CpuModelName();
  uint32_t a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid(1, &a, &b, &c, &d)) return features;
  const bool osxsave = c & bit_OSXSAVE;
  const bool fma = c & bit_FMA;
  const bool f16c = c & bit_F16C;
  const uint64_t xcr0 = osxsave ? ReadXcr0() : 0;
  const bool ymm_saved = (xcr0 & 0x6) == 0x6;    // SSE and AVX state
  const bool zmm_saved = (xcr0 & 0xe6) == 0xe6;  // and the three AVX-512 states
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return features;
  features.avx2_fma_f16c = ymm_saved && fma && f16c && (b & bit_AVX2);
  features.avx512 = zmm_saved && features.avx2_fma_f16c && (b & bit_AVX512F) &&
                    (b & bit_AVX512BW) && (b & bit_AVX512VL) && (b & bit_AVX512DQ);
  features.avx512_vnni = features.avx512 && (c & bit_AVX512VNNI);
  if (a >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d)) {
    features.avx512_bf16 = features.avx512 && (a & bit_AVX512BF16);
  }
  return features;
}
#else
CpuFeatures Detect() { return {}; }
#endif

}  // namespace

const CpuFeatures& HostCpuFeatures() {
  static const CpuFeatures features = Detect();
  return features;
}

}  // namespace octavo
