// The kernels for AVX2 with FMA and F16C. Everything but the table has internal linkage: a function
// that the linker could merge with another file's copy would run instructions that the CPU may
// lack.
#include <immintrin.h>

#include "kernels/generic/attention-inl.h"
#include "kernels/generic/linear_f32-inl.h"
#include "kernels/generic/pack_rows-inl.h"
#include "kernels/generic/quantize_rows-inl.h"
#include "kernels/generic/rows-inl.h"
#include "kernels/isa_tables.h"
#include "kernels/x86/pack_avx2-inl.h"
#include "kernels/x86/vec_avx2.h"
#include "kernels/x86/weights_avx2-inl.h"

namespace octavo {
namespace {

template <LinearFormat format>
constexpr void SetLinear(KernelTable& table, const char* name) {
  using Linear = LinearF32<VecAvx2, WeightsAvx2>;
  for (const ActivationMode mode : {ActivationMode::kF32, ActivationMode::k16Bit}) {
    LinearKernel& kernel = table.linear[static_cast<int>(format)][static_cast<int>(mode)];
    kernel.name = name;
    kernel.run = Linear::Run<format>;
  }
}

constexpr KernelTable MakeTable() {
  KernelTable table;
  table.isa = "avx2";
  table.supported = SupportsAvx2;
  table.rows = Rows<VecAvx2>::Table();
  table.attention_scratch_floats = PagedAttention<VecAvx2>::ScratchFloats;
  table.attention = PagedAttention<VecAvx2>::Run;
  SetLinear<LinearFormat::kF32>(table, "linear_f32xf32_1x64__avx2");
  SetLinear<LinearFormat::kBf16>(table, "linear_f32xbf16_1x64__avx2");
  SetLinear<LinearFormat::kF16>(table, "linear_f32xf16_1x64__avx2");
  SetLinear<LinearFormat::kS8Channel>(table, "linear_f32xs8c_1x64__avx2");
  table.quantize_rows_s8 = QuantizeRows<VecAvx2, CodesAvx2>::Run;
  table.pack_rows = PackRowsWith<TransposeAvx2>::Run;
  return table;
}

}  // namespace

constinit const KernelTable kAvx2Kernels = MakeTable();

}  // namespace octavo
