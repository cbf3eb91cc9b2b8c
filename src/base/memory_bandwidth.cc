#include "base/memory_bandwidth.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>

#include "base/thread_pool.h"

namespace octavo {
namespace {

constexpr size_t kChunkBytes = 4u << 20;  // of one thread at a time
constexpr size_t kLineWords = 8;          // 64 bytes

// The sum of the words of whole cache lines. Eight independent sums keep the loads ahead of the
// additions.
uint64_t SumLines(const std::byte* memory, size_t bytes) {
  uint64_t sums[kLineWords] = {};
  const size_t lines = bytes / (kLineWords * sizeof(uint64_t));
  for (size_t line = 0; line < lines; ++line) {
    uint64_t words[kLineWords];
    std::memcpy(words, memory + line * sizeof words, sizeof words);
    for (size_t i = 0; i < kLineWords; ++i) sums[i] += words[i];
  }
  uint64_t sum = 0;
  for (const uint64_t part : sums) sum += part;
  return sum;
}

}  // namespace

double MeasureReadBandwidth(ThreadPool& pool, std::span<std::byte> memory, int passes) {
  const auto chunks = static_cast<int64_t>((memory.size() + kChunkBytes - 1) / kChunkBytes);
  const auto chunk_of = [&](int64_t chunk) {
    const size_t begin = static_cast<size_t>(chunk) * kChunkBytes;
    return memory.subspan(begin, std::min(kChunkBytes, memory.size() - begin));
  };
  // Pages that were never written would all be one page of zeros.
  pool.ParallelFor(chunks, [&](int64_t chunk, int) noexcept {
    std::memset(chunk_of(chunk).data(), static_cast<int>(chunk & 0x7f) + 1, chunk_of(chunk).size());
  });
  std::atomic<uint64_t> sum{0};  // so that the reads are not removed
  double best = 0;
  for (int pass = 0; pass < passes; ++pass) {
    const auto start = std::chrono::steady_clock::now();
    pool.ParallelFor(chunks, [&](int64_t chunk, int) noexcept {
      const std::span<std::byte> bytes = chunk_of(chunk);
      sum.fetch_add(SumLines(bytes.data(), bytes.size()), std::memory_order_relaxed);
    });
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    best = std::max(best, static_cast<double>(memory.size()) / seconds);
  }
  return sum.load() == 0 ? 0 : best;
}

}  // namespace octavo
