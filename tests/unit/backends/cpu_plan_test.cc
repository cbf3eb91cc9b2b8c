// The parts of the CPU backend that decide: the planner, the cutting of linears, rope tables.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "backends/cpu/linear_tiles.h"
#include "backends/cpu/plan.h"
#include "backends/cpu/rope_table.h"
#include "graph/rope.h"
#include "unit/backends/cpu_support.h"

namespace octavo::cpu {
namespace {

TEST(PlanTest, ALayerIsFourLinearRegionsAndOneOfAttention) {
  const Plan plan = MakePlan(testing::MakeDecoder({.layers = 3, .head_norm = true}));
  ASSERT_EQ(plan.linears.size(), 3u * 4 + 1);
  EXPECT_EQ(plan.linears[0].outputs.size(), 3u);  // q, k, v
  EXPECT_EQ(plan.linears[1].outputs.size(), 1u);  // o
  EXPECT_EQ(plan.linears[2].outputs.size(), 2u);  // gate, up
  EXPECT_EQ(plan.linears[3].outputs.size(), 1u);  // down
  EXPECT_EQ(plan.linears[0].name, "layer0.q");
  EXPECT_EQ(plan.linears.back().rows, Rows::kSelected);
  size_t rows = 0, linears = 0, attentions = 0, captures = 0;
  for (const Step& step : plan.steps) {
    rows += std::holds_alternative<RowRegion>(step);
    linears += std::holds_alternative<RunLinear>(step);
    attentions += std::holds_alternative<AttentionRegion>(step);
    captures += std::holds_alternative<Capture>(step);
  }
  EXPECT_EQ(linears, 13u);
  EXPECT_EQ(attentions, 3u);
  EXPECT_EQ(captures, 4u);
  // Before q/k/v, with head norms, ropes and the cache, before o, before gate/up and before down:
  // five a layer; the selected rows before the head; the last residual and norm.
  EXPECT_EQ(rows, 3u * 5 + 2);
}

TEST(PlanTest, SlotsDoNotGrowWithTheLayers) {
  const Plan few = MakePlan(testing::MakeDecoder({.layers = 2}));
  const Plan many = MakePlan(testing::MakeDecoder({.layers = 20}));
  EXPECT_EQ(few.slots.size(), many.slots.size());
  EXPECT_LE(many.slots.size(), 12u);
}

TEST(PlanTest, PreparationsThatNobodyNeedsGo) {
  Plan plan = MakePlan(testing::MakeDecoder({.layers = 1}));
  const size_t before = plan.steps.size();
  RemovePreparations(plan.steps, [](int32_t linear) { return linear == 0; });
  EXPECT_EQ(plan.steps.size(), before - 1);  // the region before o did nothing else
}

// Every cell of every output exactly once.
TEST(LinearTilesTest, CoverTheOutputs) {
  for (const std::vector<int64_t>& widths :
       {std::vector<int64_t>{64}, {576, 192, 192}, {1, 17, 83}, {8192, 8192}, {49152}}) {
    for (const int64_t m : {1, 2, 31, 300}) {
      for (const int threads : {1, 2, 7}) {
        LinearRegion region{Rows::kTokens, 0, 1000, {}, ""};
        std::vector<std::vector<int>> seen;
        for (const int64_t n : widths) {
          region.outputs.push_back({0, kNoWeight, 0, n});
          seen.emplace_back(static_cast<size_t>(n * m), 0);
        }
        const LinearTiles tiles(region, m, threads);
        for (int64_t task = 0; task < tiles.count(); ++task) {
          int64_t cells = 0;
          tiles.ForEachPart(task, [&](size_t output, int64_t m_begin, int64_t m_end,
                                      int64_t n_begin, int64_t n_end) {
            EXPECT_EQ(n_begin % 16, 0);
            EXPECT_TRUE(n_end % 16 == 0 || n_end == widths[output]);
            for (int64_t row = m_begin; row < m_end; ++row) {
              for (int64_t column = n_begin; column < n_end; ++column, ++cells) {
                ++seen[output][static_cast<size_t>(row * widths[output] + column)];
              }
            }
          });
          EXPECT_GT(cells, 0) << "an empty task";
        }
        for (const auto& output : seen) {
          for (const int count : output) ASSERT_EQ(count, 1);
        }
      }
    }
  }
}

TEST(LinearTilesTest, ADecodeStepIsSharedEvenly) {
  LinearRegion region{Rows::kTokens, 0, 576, {}, ""};
  for (const int64_t n : {576, 192, 192}) region.outputs.push_back({0, kNoWeight, 0, n});
  const LinearTiles tiles(region, 1, 2);
  for (int64_t task = 0; task < tiles.count(); ++task) {
    int64_t columns = 0;
    tiles.ForEachPart(task, [&](size_t, int64_t, int64_t, int64_t begin, int64_t end) {
      columns += end - begin;
    });
    EXPECT_NEAR(static_cast<double>(columns), 960.0 / static_cast<double>(tiles.count()), 16.0);
  }
}

TEST(RopeTableTest, PositionsInAnyOrder) {
  RopeParameters parameters;
  parameters.rotary_dim = 12;
  parameters.theta = 500.0;
  const RopeFrequencies frequencies = ComputeRopeFrequencies(parameters, 0);
  RopeTable table(parameters);
  for (const int64_t first : {100, 3, 250}) {
    table.Begin(8);
    table.AddRows(5, first, first + 5);
    table.AddRows(3, 0, 3);
    for (int64_t row = 0; row < 8; ++row) {
      const float position = static_cast<float>(row < 5 ? first + row : row - 5);
      for (int64_t i = 0; i < 6; ++i) {
        const double angle = double{position * frequencies.inverse[static_cast<size_t>(i)]};
        EXPECT_NEAR(table.cosines(row)[i], std::cos(angle), 6e-8);
        EXPECT_NEAR(table.sines(row)[i], std::sin(angle), 6e-8);
      }
    }
  }
}

TEST(RopeTableTest, DynamicFrequenciesFollowEachSequence) {
  RopeParameters parameters;
  parameters.type = RopeType::kDynamic;
  parameters.rotary_dim = 12;
  parameters.factor = 2.0;
  parameters.max_position_embeddings = 40;
  RopeTable table(parameters);
  table.Begin(2);
  table.AddRows(1, 30, 31);
  table.AddRows(1, 30, 100);
  const auto cosine = [&](int64_t length) {
    return std::cos(double{30.0f * ComputeRopeFrequencies(parameters, length).inverse[2]});
  };
  EXPECT_NEAR(table.cosines(0)[2], cosine(31), 6e-8);
  EXPECT_NEAR(table.cosines(1)[2], cosine(100), 6e-8);
  EXPECT_GT(std::abs(cosine(31) - cosine(100)), 1e-3);
}

}  // namespace
}  // namespace octavo::cpu
