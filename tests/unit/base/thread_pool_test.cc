#include "base/thread_pool.h"

#include <gtest/gtest.h>
#include <octavo/error.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

namespace octavo {
namespace {

class ThreadPoolTest : public testing::TestWithParam<int> {};

TEST_P(ThreadPoolTest, RunsEachChunkOnceOnAThreadOfThePool) {
  ThreadPool pool(GetParam());
  ASSERT_EQ(pool.size(), GetParam());
  for (const int64_t chunks : {0, 1, 2, 7, 1000}) {
    std::vector<std::atomic<int>> runs(static_cast<size_t>(chunks));
    std::atomic<bool> thread_in_range{true};
    pool.ParallelFor(chunks, [&](int64_t chunk, int thread) {
      runs[static_cast<size_t>(chunk)].fetch_add(1);
      if (thread < 0 || thread >= pool.size()) thread_in_range = false;
    });
    for (const auto& count : runs) EXPECT_EQ(count.load(), 1);
    EXPECT_TRUE(thread_in_range);
  }
}

TEST_P(ThreadPoolTest, SurvivesManyShortRegionsAndPauses) {
  ThreadPool pool(GetParam());
  std::atomic<int64_t> sum{0};
  for (int region = 0; region < 3000; ++region) {
    pool.ParallelFor(3, [&](int64_t chunk, int) { sum.fetch_add(chunk + 1); });
    // Past the spin time, so that workers fall asleep and must be woken.
    if (region % 500 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  EXPECT_EQ(sum.load(), 3000 * 6);
}

TEST_P(ThreadPoolTest, TasksRethrowTheFirstExceptionAndStop) {
  ThreadPool pool(GetParam());
  std::atomic<int64_t> ran{0};
  constexpr int64_t kChunks = 100'000'000;  // seconds of work, should it not stop
  EXPECT_THROW(pool.ParallelTasks(kChunks,
                                  [&](int64_t chunk, int) {
                                    ran.fetch_add(1);
                                    if (chunk == 5) throw std::runtime_error("chunk 5");
                                  }),
               std::runtime_error);
  EXPECT_LT(ran.load(), kChunks);
  pool.ParallelTasks(10, [&](int64_t, int) { ran.fetch_add(1); });  // usable afterwards
}

INSTANTIATE_TEST_SUITE_P(Threads, ThreadPoolTest, testing::Values(1, 2, 5));

TEST(ThreadPoolIdleTest, UsesNoCpuWhenIdle) {
  ThreadPool pool(4);
  pool.ParallelFor(8, [](int64_t, int) {});
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const auto cpu_seconds = [] {
    rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           1e-6 * static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
  };
  const double before = cpu_seconds();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_LT(cpu_seconds() - before, 0.05);
}

// Exit status 0 when a pool that the system has no room for is refused with an error.
[[noreturn]] void MakeTooLargePool() {
  rlimit memory;
  memory.rlim_cur = memory.rlim_max = size_t{2} << 30;  // room for some stacks, not for all
  setrlimit(RLIMIT_AS, &memory);
  try {
    ThreadPool pool(4000);
  } catch (const Error& error) {
    _exit(error.code() == ErrorCode::kResourceExhausted ? 0 : 2);
  }
  _exit(1);
}

TEST(ThreadPoolLimitTest, TooManyThreadsAreAnErrorAndNotAHang) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "AddressSanitizer reserves more address space than the limit";
#endif
  EXPECT_EXIT(MakeTooLargePool(), testing::ExitedWithCode(0), "");
}

TEST(UsableCpuCountTest, IsAtLeastOneAndAtMostWhatIsOnline) {
  EXPECT_GE(UsableCpuCount(), 1);
  EXPECT_LE(UsableCpuCount(), static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)));
}

}  // namespace
}  // namespace octavo
