#include "base/process_memory.h"

#include <fstream>
#include <string>

namespace octavo {
namespace {

uint64_t StatusKilobytes(const std::string& field) {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word) {
    uint64_t kilobytes = 0;
    if (word == field && status >> kilobytes) return kilobytes * 1024;
    status.ignore(1 << 16, '\n');
  }
  return 0;
}

}  // namespace

uint64_t PeakResidentBytes() { return StatusKilobytes("VmHWM:"); }
uint64_t ResidentBytes() { return StatusKilobytes("VmRSS:"); }

}  // namespace octavo
