// How fast this machine reads memory: what the speed of a decode step is measured against.
#pragma once

#include <cstddef>
#include <span>

namespace octavo {

class ThreadPool;

// Fills `memory`, then reads all of it `passes` times with every thread of the pool, and returns
// the bytes per second of the fastest pass. `memory` should be several times larger than the
// caches.
double MeasureReadBandwidth(ThreadPool& pool, std::span<std::byte> memory, int passes);

}  // namespace octavo
