// Frequencies against those of transformers 5.24's modeling_rope_utils (torch 2.15, float32),
// printed with nine digits for a head of 16.
#include "graph/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace octavo {
namespace {

RopeParameters Base(RopeType type) {
  RopeParameters rope;
  rope.type = type;
  rope.rotary_dim = 16;
  rope.max_position_embeddings = 256;
  return rope;
}

// Within two units in the last place: torch's vectorized pow may differ by one.
void ExpectFrequencies(const RopeFrequencies& found, const std::vector<float>& inverse,
                       double attention_factor) {
  ASSERT_EQ(found.inverse.size(), inverse.size());
  for (size_t i = 0; i < inverse.size(); ++i) {
    EXPECT_NEAR(found.inverse[i], inverse[i], inverse[i] * 2.4e-7) << "pair " << i;
  }
  EXPECT_FLOAT_EQ(found.attention_factor, static_cast<float>(attention_factor));
}

TEST(Rope, DefaultFollowsTheFormula) {
  RopeParameters rope = Base(RopeType::kDefault);
  rope.theta = 500000.0;
  const RopeFrequencies found = ComputeRopeFrequencies(rope, 10);
  ASSERT_EQ(found.inverse.size(), 8u);
  for (size_t i = 0; i < 8; ++i) {
    const double expected = std::pow(500000.0, -2.0 * static_cast<double>(i) / 16.0);
    EXPECT_NEAR(found.inverse[i], expected, expected * 2.4e-7);
  }
  EXPECT_EQ(found.attention_factor, 1.0f);
  EXPECT_FALSE(DependsOnLength(rope));
}

TEST(Rope, Linear) {
  RopeParameters rope = Base(RopeType::kLinear);
  rope.factor = 4.0;
  ExpectFrequencies(ComputeRopeFrequencies(rope, 10),
                    {0.25f, 0.079056941f, 0.0250000004f, 0.00790569466f, 0.00249999994f,
                     0.000790569466f, 0.000250000012f, 7.90569466e-05f},
                    1.0);
}

TEST(Rope, DynamicStretchesPastTheTrainedLength) {
  RopeParameters rope = Base(RopeType::kDynamic);
  rope.factor = 2.0;
  rope.max_position_embeddings = 24;
  const std::vector<float> trained = {1.0f,           0.316227764f,   0.100000001f,
                                      0.0316227786f,  0.00999999978f, 0.00316227786f,
                                      0.00100000005f, 0.000316227786f};
  ExpectFrequencies(ComputeRopeFrequencies(rope, 1), trained, 1.0);
  ExpectFrequencies(ComputeRopeFrequencies(rope, 24), trained, 1.0);
  ExpectFrequencies(ComputeRopeFrequencies(rope, 60),
                    {1.0f, 0.259412825f, 0.0672950074f, 0.017457189f, 0.00452861842f,
                     0.00117478159f, 0.000304753397f, 7.90569466e-05f},
                    1.0);
  EXPECT_TRUE(DependsOnLength(rope));
}

TEST(Rope, Yarn) {
  RopeParameters rope = Base(RopeType::kYarn);
  rope.factor = 4.0;
  rope.original_max_position_embeddings = 64;
  ExpectFrequencies(ComputeRopeFrequencies(rope, 10),
                    {1.0f, 0.237170815f, 0.049999997f, 0.00790569466f, 0.00249999994f,
                     0.000790569466f, 0.000250000012f, 7.90569466e-05f},
                    1.138629436111989);
  EXPECT_FALSE(DependsOnLength(rope));
}

TEST(Rope, YarnWithMscaleAndWithoutTruncation) {
  RopeParameters rope = Base(RopeType::kYarn);
  rope.factor = 40.0;
  rope.max_position_embeddings = 163840;
  rope.original_max_position_embeddings = 4096;
  rope.mscale = 1.0;
  rope.mscale_all_dim = 0.8;
  rope.truncate = false;
  ExpectFrequencies(ComputeRopeFrequencies(rope, 10),
                    {1.0f, 0.316227764f, 0.100000001f, 0.0277108587f, 0.00552406255f,
                     0.000722638157f, 2.49999994e-05f, 7.90569447e-06f},
                    1.0569662567531275);
}

TEST(Rope, LongropeSwitchesListsAfterTheOriginalLength) {
  RopeParameters rope = Base(RopeType::kLongrope);
  rope.max_position_embeddings = 96;
  rope.original_max_position_embeddings = 24;
  rope.factor = 4.0;
  rope.short_factor = {1.0, 1.1, 1.2, 1.3, 1.5, 1.7, 2.0, 2.5};
  rope.long_factor = {2.0, 2.5, 3.0, 4.0, 5.0, 7.0, 9.0, 12.0};
  ExpectFrequencies(ComputeRopeFrequencies(rope, 24),
                    {1.0f, 0.287479758f, 0.0833333358f, 0.0243252143f, 0.00666666683f,
                     0.00186016329f, 0.000500000024f, 0.000126491112f},
                    1.198419202103781);
  ExpectFrequencies(ComputeRopeFrequencies(rope, 25),
                    {0.5f, 0.126491114f, 0.0333333351f, 0.00790569466f, 0.00200000009f,
                     0.000451753964f, 0.000111111112f, 2.63523143e-05f},
                    1.198419202103781);
  EXPECT_TRUE(DependsOnLength(rope));
}

TEST(Rope, Llama3) {
  RopeParameters rope = Base(RopeType::kLlama3);
  rope.theta = 500000.0;
  rope.factor = 8.0;
  rope.original_max_position_embeddings = 32;
  ExpectFrequencies(ComputeRopeFrequencies(rope, 10),
                    {1.0f, 0.0242403448f, 0.00470075384f, 0.000911583134f, 0.000176776681f,
                     3.42810235e-05f, 6.64786967e-06f, 1.28917316e-06f},
                    1.0);
}

TEST(Rope, ProblemsNameTheField) {
  RopeParameters rope = Base(RopeType::kDefault);
  EXPECT_EQ(FindRopeProblem(rope, 16), "");
  rope.rotary_dim = 15;
  EXPECT_NE(FindRopeProblem(rope, 15).find("head_dim"), std::string::npos);
  rope = Base(RopeType::kLongrope);
  rope.short_factor.assign(8, 1.0);
  rope.long_factor.assign(7, 1.0);
  EXPECT_NE(FindRopeProblem(rope, 16).find("long_factor: expected 8"), std::string::npos);
  rope.long_factor.assign(8, 1.0);
  rope.factor = 4.0;
  EXPECT_EQ(FindRopeProblem(rope, 16), "");
  rope.original_max_position_embeddings = 1;  // its logarithm divides
  EXPECT_NE(FindRopeProblem(rope, 16).find("not finite"), std::string::npos);
  rope = Base(RopeType::kYarn);
  rope.theta = 1.0;
  EXPECT_NE(FindRopeProblem(rope, 16).find("rope_theta"), std::string::npos);
}

TEST(Rope, NamesOfTypesGoBothWays) {
  for (const RopeType type : {RopeType::kDefault, RopeType::kLinear, RopeType::kDynamic,
                              RopeType::kYarn, RopeType::kLongrope, RopeType::kLlama3}) {
    EXPECT_EQ(RopeTypeFromName(Name(type)), type);
  }
  EXPECT_EQ(RopeTypeFromName("ntk"), std::nullopt);
}

}  // namespace
}  // namespace octavo
