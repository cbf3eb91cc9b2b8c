#include "base/memory_bandwidth.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/thread_pool.h"

namespace octavo {
namespace {

TEST(MeasureReadBandwidth, TouchesEveryByteAndGivesARate) {
  ThreadPool pool(2);
  std::vector<std::byte> memory((9u << 20) + 100);  // the last chunk is a short one
  const double rate = MeasureReadBandwidth(pool, memory, 2);
  EXPECT_EQ(std::count(memory.begin(), memory.end(), std::byte{0}), 0);
  EXPECT_GT(rate, 1e7);
  EXPECT_LT(rate, 1e13);
}

}  // namespace
}  // namespace octavo
