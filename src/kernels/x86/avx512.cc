// The kernels for AVX-512 F, BW, VL and DQ. Everything but the table has internal linkage: a function that
// the linker could merge with another file's copy would run instructions that the CPU may lack.
#include <immintrin.h>

#include "kernels/isa_tables.h"

namespace octavo {
namespace {

constexpr KernelTable MakeTable() {
  KernelTable table;
  table.isa = "avx512";
  table.supported = SupportsAvx512;
  return table;
}

}  // namespace

constinit const KernelTable kAvx512Kernels = MakeTable();

}  // namespace octavo
