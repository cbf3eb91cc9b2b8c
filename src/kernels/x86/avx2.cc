// The kernels for AVX2 with FMA and F16C. Everything but the table has internal linkage: a function that
// the linker could merge with another file's copy would run instructions that the CPU may lack.
#include <immintrin.h>

#include "kernels/isa_tables.h"

namespace octavo {
namespace {

constexpr KernelTable MakeTable() {
  KernelTable table;
  table.isa = "avx2";
  table.supported = SupportsAvx2;
  return table;
}

}  // namespace

constinit const KernelTable kAvx2Kernels = MakeTable();

}  // namespace octavo
