#include "kernels/dispatch.h"

#include <octavo/error.h>

#include <cstdlib>
#include <string>

#include "base/cpu_features.h"
#include "kernels/isa_tables.h"

namespace octavo {

#if defined(OCTAVO_KERNELS_X86)
bool SupportsAvx2(const CpuFeatures& features) { return features.avx2_fma_f16c; }
bool SupportsAvx512(const CpuFeatures& features) { return features.avx512; }
bool SupportsAvx512Vnni(const CpuFeatures& features) { return features.avx512_vnni; }
#endif

namespace {

// Best first. A new instruction set is a line here, one in isa_tables.h and one in
// KernelIsas.cmake.
constexpr const KernelTable* kTables[] = {
#if defined(OCTAVO_KERNELS_X86)
    &kAvx512VnniKernels,
    &kAvx512Kernels,
    &kAvx2Kernels,
#endif
    &kScalarKernels,
};

template <typename Function>
void FillIn(Function& entry, Function from) {
  if (entry == nullptr) entry = from;
}

// Takes over from `lower` what `table` does not have.
void Merge(KernelTable& table, const KernelTable& lower) {
  for (int format = 0; format < kLinearFormats; ++format) {
    for (int mode = 0; mode < kActivationModes; ++mode) {
      LinearKernel& entry = table.linear[format][mode];
      // As a whole: `run` reads what its own `prepare` wrote.
      if (entry.run == nullptr) entry = lower.linear[format][mode];
    }
  }
  FillIn(table.rows.rms_norm, lower.rows.rms_norm);
  FillIn(table.rows.rope, lower.rows.rope);
  FillIn(table.rows.gated_activation, lower.rows.gated_activation);
  FillIn(table.rows.add, lower.rows.add);
  FillIn(table.rows.to_f32, lower.rows.to_f32);
  FillIn(table.rows.from_f32, lower.rows.from_f32);
  FillIn(table.rows.softmax_statistics, lower.rows.softmax_statistics);
  if (table.attention == nullptr) {
    table.attention = lower.attention;
    table.attention_scratch_floats = lower.attention_scratch_floats;
  }
  FillIn(table.quantize_rows_s8, lower.quantize_rows_s8);
  FillIn(table.quantize_rows_block, lower.quantize_rows_block);
  FillIn(table.pack_rows, lower.pack_rows);
  FillIn(table.pack_rows_s4, lower.pack_rows_s4);
}

std::string SupportedNames() {
  std::string names;
  for (const KernelTable* table : kTables) {
    if (!table->supported(HostCpuFeatures())) continue;
    if (!names.empty()) names += ", ";
    names += table->isa;
  }
  return names;
}

KernelTable ResolveFrom(size_t first) {
  KernelTable merged = *kTables[first];
  for (size_t i = first + 1; i < std::size(kTables); ++i) {
    if (kTables[i]->supported(HostCpuFeatures())) Merge(merged, *kTables[i]);
  }
  return merged;
}

KernelTable ResolveHost() {
  const char* cap = std::getenv("OCTAVO_ISA");
  if (cap != nullptr && *cap != '\0') {
    try {
      return ResolveKernels(cap);
    } catch (const Error& error) {
      throw Error(error.code(), std::string("environment variable OCTAVO_ISA: ") + error.what());
    }
  }
  for (size_t i = 0; i < std::size(kTables); ++i) {
    if (kTables[i]->supported(HostCpuFeatures())) return ResolveFrom(i);
  }
  throw Error(ErrorCode::kInternal, "no kernel table supports this CPU, not even scalar");
}

}  // namespace

std::span<const KernelTable* const> AllKernelTables() { return kTables; }

KernelTable ResolveKernels(std::string_view isa) {
  for (size_t i = 0; i < std::size(kTables); ++i) {
    if (isa != kTables[i]->isa) continue;
    if (kTables[i]->supported(HostCpuFeatures())) return ResolveFrom(i);
    throw Error(ErrorCode::kInvalidArgument,
                "instruction set \"" + std::string(isa) +
                    "\" is not supported by this CPU; expected one of: " + SupportedNames());
  }
  throw Error(ErrorCode::kInvalidArgument, "unknown instruction set \"" + std::string(isa) +
                                               "\"; expected one of: " + SupportedNames());
}

const KernelTable& HostKernels() {
  static const KernelTable kernels = ResolveHost();
  return kernels;
}

}  // namespace octavo
