// The kernels for AVX-512 VNNI. Everything but the table has internal linkage: a function that
// the linker could merge with another file's copy would run instructions that the CPU may lack.
#include <immintrin.h>

#include "kernels/isa_tables.h"
#include "kernels/x86/planes_linear-inl.h"

namespace octavo {
namespace {

constexpr KernelTable MakeTable() {
  KernelTable table;
  table.isa = "avx512_vnni";
  table.supported = SupportsAvx512Vnni;
  LinearKernel& linear = table.linear[static_cast<int>(LinearFormat::kS8Channel)]
                                     [static_cast<int>(ActivationMode::k16Bit)];
  // Two planes, as nearly all rows have.
  linear.name = "linear_u8px2xs8c_1x32__avx512_vnni";
  linear.prepared_bytes = PreparedBytes;
  linear.prepare = PrepareRows;
  linear.run = RunPlanes;
  return table;
}

}  // namespace

constinit const KernelTable kAvx512VnniKernels = MakeTable();

}  // namespace octavo
