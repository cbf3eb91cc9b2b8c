#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include "engine/block_pool.h"

namespace octavo {
namespace {

std::vector<std::pair<size_t, int64_t>> Step(std::vector<SequenceProgress> running,
                                             int64_t budget) {
  std::vector<std::pair<size_t, int64_t>> rows;
  for (const ScheduledRows& scheduled : ScheduleStep(running, budget)) {
    rows.emplace_back(scheduled.sequence, scheduled.rows);
  }
  return rows;
}

using Rows = std::vector<std::pair<size_t, int64_t>>;

TEST(SchedulerTest, PromptsAreTakenInChunksOfTheBudget) {
  EXPECT_EQ(Step({{.tokens = 1000, .computed = 0}}, 512), (Rows{{0, 512}}));
  EXPECT_EQ(Step({{.tokens = 1000, .computed = 512}}, 512), (Rows{{0, 488}}));
}

TEST(SchedulerTest, DecodeIsNotHeldUpByALongPrompt) {
  EXPECT_EQ(
      Step({{.tokens = 1000}, {.tokens = 20, .computed = 19}, {.tokens = 8, .computed = 7}}, 64),
      (Rows{{0, 62}, {1, 1}, {2, 1}}));
}

TEST(SchedulerTest, SeveralPromptsShareTheBudgetOldestFirst) {
  EXPECT_EQ(Step({{.tokens = 30}, {.tokens = 30}, {.tokens = 30}}, 64),
            (Rows{{0, 30}, {1, 30}, {2, 4}}));
  EXPECT_EQ(Step({{.tokens = 3, .computed = 3}}, 64), Rows{});
}

TEST(BlockPoolTest, HandsOutEachBlockOnceAndTakesThemBack) {
  BlockPool pool(4);
  std::vector<int32_t> a;
  std::vector<int32_t> b;
  EXPECT_TRUE(pool.Allocate(3, a));
  EXPECT_FALSE(pool.Allocate(2, b));
  EXPECT_TRUE(b.empty());
  EXPECT_TRUE(pool.Allocate(1, b));
  EXPECT_EQ(pool.available(), 0);
  for (const int32_t block : a) EXPECT_NE(block, b[0]);
  pool.Free(a);
  EXPECT_TRUE(a.empty());
  EXPECT_EQ(pool.available(), 3);
}

}  // namespace
}  // namespace octavo
