#include "base/thread_pool.h"

#include <fmt/format.h>
#include <octavo/error.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <exception>
#include <fstream>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace octavo {
namespace {

void CpuRelax() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

// How long a worker spins for the next region before it sleeps: longer than the gaps within a
// decode step (microseconds), far shorter than a person's pause.
constexpr std::chrono::microseconds kWorkerSpin{200};
// How long the caller spins for the last chunks before it gives its core away: where there are more
// threads than cores, the worker it waits for may need just that core.
constexpr std::chrono::microseconds kCallerSpin{20};
constexpr int kSpinsPerClockRead = 64;

// Spins until done() or the time has passed; tells whether it is done.
template <typename Done>
bool SpinUntil(Done&& done, std::chrono::microseconds time) {
  const auto deadline = std::chrono::steady_clock::now() + time;
  do {
    for (int i = 0; i < kSpinsPerClockRead; ++i) {
      if (done()) return true;
      CpuRelax();
    }
  } while (std::chrono::steady_clock::now() < deadline);
  return done();
}

// CPUs of the cgroup's quota, rounded up; 0 without one. cgroup v2, then v1.
int CgroupCpuLimit() {
  std::ifstream v2("/sys/fs/cgroup/cpu.max");
  std::string quota_text;
  double period = 0;
  if (v2 >> quota_text >> period && quota_text != "max" && period > 0) {
    return static_cast<int>((std::stod(quota_text) + period - 1) / period);
  }
  std::ifstream quota_v1("/sys/fs/cgroup/cpu/cpu.cfs_quota_us");
  std::ifstream period_v1("/sys/fs/cgroup/cpu/cpu.cfs_period_us");
  double quota = 0;
  if (quota_v1 >> quota && period_v1 >> period && quota > 0 && period > 0) {
    return static_cast<int>((quota + period - 1) / period);
  }
  return 0;
}

}  // namespace

int UsableCpuCount() {
  int count = static_cast<int>(std::thread::hardware_concurrency());
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) count = CPU_COUNT(&set);
  if (const int limit = CgroupCpuLimit(); limit > 0) count = std::min(count, limit);
  return std::max(count, 1);
}

// A region is a number, an open flag and the count of workers that joined it, in one word, so that
// a worker joins a region only while it is open. The caller closes it when no chunk is left and
// waits for those who joined, not for those who sleep or are off their core.
struct ThreadPool::State {
  static constexpr uint64_t kOpen = uint64_t{1} << 31;
  static constexpr uint64_t kJoined = kOpen - 1;
  static uint64_t RegionOf(uint64_t gate) { return gate >> 32; }

  std::vector<std::thread> workers;
  std::atomic<uint64_t> gate{0};
  std::atomic<int64_t> next_chunk{0};
  std::atomic<uint64_t> left{0};  // of those who joined, how many have no chunk any more
  std::atomic<int> asleep{0};
  std::atomic<bool> quit{false};
  Function function = nullptr;
  void* body = nullptr;
  int64_t chunks = 0;
  std::mutex mutex;
  std::condition_variable wake;

  void TakeChunks(int thread) noexcept {
    for (;;) {
      const int64_t chunk = next_chunk.fetch_add(1, std::memory_order_relaxed);
      if (chunk >= chunks) return;
      function(body, chunk, thread);
    }
  }

  void WaitForRegionAfter(uint64_t last) {
    const auto arrived = [&] { return RegionOf(gate.load(std::memory_order_acquire)) != last; };
    if (SpinUntil(arrived, kWorkerSpin)) return;
    std::unique_lock lock(mutex);
    asleep.fetch_add(1, std::memory_order_seq_cst);
    wake.wait(lock, [&] { return RegionOf(gate.load(std::memory_order_seq_cst)) != last; });
    asleep.fetch_sub(1, std::memory_order_relaxed);
  }

  // The region joined or found closed.
  uint64_t JoinAndWork(int thread) noexcept {
    uint64_t seen = gate.load(std::memory_order_acquire);
    while ((seen & kOpen) != 0) {
      if (!gate.compare_exchange_weak(seen, seen + 1, std::memory_order_acq_rel)) continue;
      TakeChunks(thread);
      left.fetch_add(1, std::memory_order_release);
      break;
    }
    return RegionOf(seen);
  }

  void Work(int thread) {
    uint64_t last = 0;
    for (;;) {
      WaitForRegionAfter(last);
      if (quit.load(std::memory_order_relaxed)) return;
      last = JoinAndWork(thread);
    }
  }

  void Publish(uint64_t open) {
    gate.store(((RegionOf(gate.load(std::memory_order_relaxed)) + 1) << 32) | open,
               std::memory_order_seq_cst);
    // A worker registers as asleep before it looks at `gate` for the last time, both in one total
    // order: either it sees the new region or its sleep is seen here.
    if (asleep.load(std::memory_order_seq_cst) > 0) {
      std::lock_guard lock(mutex);
      wake.notify_all();
    }
  }

  void Stop() {
    quit.store(true, std::memory_order_relaxed);
    Publish(/*open=*/0);
    for (std::thread& worker : workers) worker.join();
    workers.clear();
  }

  void CloseAndWait() noexcept {
    const uint64_t joined = gate.fetch_and(~kOpen, std::memory_order_acq_rel) & kJoined;
    const auto done = [&] { return left.load(std::memory_order_acquire) == joined; };
    while (!SpinUntil(done, kCallerSpin)) sched_yield();
  }
};

ThreadPool::ThreadPool(int threads) : state_(std::make_unique<State>()) {
  if (threads <= 0) threads = UsableCpuCount();
  try {
    for (int thread = 1; thread < threads; ++thread) {
      state_->workers.emplace_back([state = state_.get(), thread] { state->Work(thread); });
    }
  } catch (const std::exception& error) {
    const size_t started = state_->workers.size() + 1;
    state_->Stop();
    throw Error(ErrorCode::kResourceExhausted,
                fmt::format("{} threads were asked for, the system stopped at {}: {}", threads,
                            started, error.what()));
  }
}

ThreadPool::~ThreadPool() { state_->Stop(); }

int ThreadPool::size() const { return static_cast<int>(state_->workers.size()) + 1; }

void ThreadPool::Run(int64_t chunks, Function function, void* body) noexcept {
  if (chunks <= 0) return;
  if (chunks == 1 || state_->workers.empty()) {
    for (int64_t chunk = 0; chunk < chunks; ++chunk) function(body, chunk, 0);
    return;
  }
  State& state = *state_;
  state.function = function;
  state.body = body;
  state.chunks = chunks;
  state.next_chunk.store(0, std::memory_order_relaxed);
  state.left.store(0, std::memory_order_relaxed);
  state.Publish(State::kOpen);
  state.TakeChunks(0);
  state.CloseAndWait();
}

struct FirstException::Slot {
  std::mutex mutex;
  std::exception_ptr exception;
};

FirstException::FirstException() : slot_(std::make_unique<Slot>()) {}
FirstException::~FirstException() = default;

void FirstException::CaptureCurrent() noexcept {
  std::lock_guard lock(slot_->mutex);
  if (!slot_->exception) slot_->exception = std::current_exception();
  stopped_.store(true, std::memory_order_relaxed);
}

void FirstException::RethrowIfAny() {
  if (slot_->exception) std::rethrow_exception(slot_->exception);
}

}  // namespace octavo
