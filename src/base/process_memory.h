// Memory of this process as the kernel counts it.
#pragma once

#include <cstdint>

namespace octavo {

// Peak resident set size in bytes (VmHWM), 0 where it cannot be read.
uint64_t PeakResidentBytes();
// Current resident set size in bytes (VmRSS), 0 where it cannot be read.
uint64_t ResidentBytes();

}  // namespace octavo
