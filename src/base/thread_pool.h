// A persistent pool for the forward pass and for loading. The caller takes part as thread 0; the
// others spin for a short while between regions (a decode step has hundreds) and then sleep, so an
// idle process uses no CPU. Chunks are claimed dynamically: a core that is slow or taken by another
// process does not hold the rest up.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <type_traits>

namespace octavo {

class ThreadPool {
 public:
  // `threads` counts the caller; 0 means one per CPU that this process may use (affinity and cgroup
  // quota).
  explicit ThreadPool(int threads = 0);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const;

  // Calls body(chunk, thread) for each chunk in [0, chunks), thread in [0, size()), and returns
  // when all are done. `body` must not throw and must not call the pool. One region at a time, from
  // one thread.
  template <typename Body>
  void ParallelFor(int64_t chunks, Body&& body) noexcept {
    using Decayed = std::remove_reference_t<Body>;
    Run(
        chunks,
        [](void* state, int64_t chunk, int thread) noexcept {
          (*static_cast<Decayed*>(state))(chunk, thread);
        },
        const_cast<void*>(static_cast<const void*>(&body)));
  }

  // The same for work that may throw: the first exception stops the hand-out of further chunks and
  // is rethrown here, in the caller, after every thread has come back.
  template <typename Body>
  void ParallelTasks(int64_t chunks, Body&& body);

 private:
  using Function = void (*)(void* state, int64_t chunk, int thread) noexcept;
  void Run(int64_t chunks, Function function, void* state) noexcept;

  struct State;
  std::unique_ptr<State> state_;
};

// The number of CPUs that this process may use: the smaller of its affinity mask and the cgroup's
// quota (rounded up), at least 1.
int UsableCpuCount();

// Carries the first exception out of a region.
class FirstException {
 public:
  FirstException();
  ~FirstException();
  void CaptureCurrent() noexcept;
  bool stopped() const noexcept { return stopped_.load(std::memory_order_relaxed); }
  void RethrowIfAny();

 private:
  std::atomic<bool> stopped_{false};
  struct Slot;
  std::unique_ptr<Slot> slot_;
};

template <typename Body>
void ThreadPool::ParallelTasks(int64_t chunks, Body&& body) {
  FirstException first;
  ParallelFor(chunks, [&](int64_t chunk, int thread) noexcept {
    if (first.stopped()) return;
    try {
      body(chunk, thread);
    } catch (...) {
      first.CaptureCurrent();
    }
  });
  first.RethrowIfAny();
}

}  // namespace octavo
