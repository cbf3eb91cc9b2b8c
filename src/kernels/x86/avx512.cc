// The kernels for AVX-512 F, BW, VL and DQ. Everything but the table has internal linkage: a
// function that the linker could merge with another file's copy would run instructions that the CPU
// may lack.
#include <immintrin.h>

#include "kernels/generic/attention-inl.h"
#include "kernels/generic/linear_f32-inl.h"
#include "kernels/generic/pack_rows-inl.h"
#include "kernels/generic/quantize_rows-inl.h"
#include "kernels/generic/rows-inl.h"
#include "kernels/isa_tables.h"
#include "kernels/x86/pack_avx512-inl.h"
#include "kernels/x86/vec_avx512.h"
#include "kernels/x86/weights_avx512-inl.h"

namespace octavo {
namespace {

template <LinearFormat format>
constexpr void SetLinear(KernelTable& table, const char* name) {
  using Linear = LinearF32<VecAvx512, WeightsAvx512>;
  for (const ActivationMode mode : {ActivationMode::kF32, ActivationMode::k16Bit}) {
    LinearKernel& kernel = table.linear[static_cast<int>(format)][static_cast<int>(mode)];
    kernel.name = name;
    kernel.run = Linear::Run<format>;
  }
}

constexpr KernelTable MakeTable() {
  KernelTable table;
  table.isa = "avx512";
  table.supported = SupportsAvx512;
  table.rows = Rows<VecAvx512>::Table();
  table.attention_scratch_floats = PagedAttention<VecAvx512>::ScratchFloats;
  table.attention = PagedAttention<VecAvx512>::Run;
  SetLinear<LinearFormat::kF32>(table, "linear_f32xf32_1x64__avx512");
  SetLinear<LinearFormat::kBf16>(table, "linear_f32xbf16_1x64__avx512");
  SetLinear<LinearFormat::kF16>(table, "linear_f32xf16_1x64__avx512");
  SetLinear<LinearFormat::kS8Channel>(table, "linear_f32xs8c_1x64__avx512");
  table.quantize_rows_s8 = QuantizeRows<VecAvx512, CodesAvx512>::Run;
  table.pack_rows = PackRowsWith<TransposeAvx512>::Run;
  return table;
}

}  // namespace

constinit const KernelTable kAvx512Kernels = MakeTable();

}  // namespace octavo
