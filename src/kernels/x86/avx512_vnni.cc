// The kernels for AVX-512 VNNI. Everything but the table has internal linkage: a function that
// the linker could merge with another file's copy would run instructions that the CPU may lack.
#include <immintrin.h>

#include "kernels/isa_tables.h"

namespace octavo {
namespace {

constexpr KernelTable MakeTable() {
  KernelTable table;
  table.isa = "avx512_vnni";
  table.supported = SupportsAvx512Vnni;
  return table;
}

}  // namespace

constinit const KernelTable kAvx512VnniKernels = MakeTable();

}  // namespace octavo
