#include "quant/module_filter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <octavo/error.h>

#include <chrono>
#include <string>

namespace octavo {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kDown[] = "model.layers.1.mlp.down_proj.weight";

bool Matches(const std::string& entry, const std::string& name) {
  ModuleFilter filter({entry});
  return filter.Match(name) != nullptr;
}

std::string ErrorOf(const std::string& entry) {
  try {
    ModuleFilter filter({entry});
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  return "no error";
}

TEST(ModuleFilter, TakesTensorAndModuleNamesExactly) {
  EXPECT_TRUE(Matches("model.layers.1.mlp.down_proj.weight", kDown));
  EXPECT_TRUE(Matches("model.layers.1.mlp.down_proj", kDown));
  EXPECT_TRUE(Matches("model.layers.1.mlp.down_proj", "model.layers.1.mlp.down_proj.bias"));
  EXPECT_FALSE(Matches("down_proj", kDown));
  EXPECT_FALSE(Matches("model.layers.1.mlp", kDown));
  EXPECT_FALSE(Matches("model.layers.1.mlp.down_proj.", kDown));
  EXPECT_FALSE(Matches("model.layers.1", "model.layers.10.mlp.down_proj.weight"));
  EXPECT_FALSE(Matches("model.layers.1.mlp.down_pro.", kDown));
  EXPECT_FALSE(Matches("model.layers.1.mlp.down_pro?", kDown));  // not a pattern without re:
}

TEST(ModuleFilter, PatternsAreAnchoredAtTheStartOnly) {
  EXPECT_TRUE(Matches("re:model", kDown));
  EXPECT_TRUE(Matches("re:.*down", kDown));
  EXPECT_TRUE(Matches("re:model\\.layers\\.\\d+\\.mlp\\.(gate|down)_proj\\.weight$", kDown));
  EXPECT_TRUE(Matches("re:^model", kDown));
  EXPECT_TRUE(Matches("re:(?!.*q_proj).*proj", kDown));
  EXPECT_FALSE(Matches("re:down", kDown));
  EXPECT_FALSE(Matches("re:layers", kDown));
  EXPECT_FALSE(Matches("re:.*down_proj$", kDown));
  EXPECT_FALSE(Matches("re:(?!.*down).*", kDown));
  EXPECT_FALSE(Matches("re:.*DOWN", kDown));
}

TEST(ModuleFilter, NamesTheEntryThatMatchedAndThoseThatNeverDid) {
  ModuleFilter filter(
      {"re:.*nothing", "re:.*down_proj", "model.layers.1.mlp.down_proj", "lm_head"});
  const std::string* entry = filter.Match(kDown);
  ASSERT_NE(entry, nullptr);
  EXPECT_EQ(*entry, "re:.*down_proj");
  EXPECT_EQ(filter.Match("model.norm.weight"), nullptr);
  EXPECT_THAT(filter.Unused(), ElementsAre("re:.*nothing", "lm_head"));
  EXPECT_NE(filter.Match("lm_head.weight"), nullptr);
  EXPECT_THAT(filter.Unused(), ElementsAre("re:.*nothing"));
}

TEST(ModuleFilter, AnEmptyListMatchesNothing) {
  ModuleFilter filter({});
  EXPECT_EQ(filter.Match(kDown), nullptr);
  EXPECT_THAT(filter.Unused(), IsEmpty());
}

TEST(ModuleFilter, BadPatternsAreNamed) {
  EXPECT_THAT(ErrorOf("re:.*(down"), HasSubstr("\"re:.*(down\": not a regular expression"));
  EXPECT_THAT(ErrorOf("re:[z-a]"), HasSubstr("\"re:[z-a]\""));
  EXPECT_THAT(ErrorOf("re:*"), HasSubstr("\"re:*\""));
  EXPECT_THAT(ErrorOf("re:"), HasSubstr("the pattern is empty"));
  EXPECT_THAT(ErrorOf(""), HasSubstr("a name or re:PATTERN was expected"));
  EXPECT_THAT(ErrorOf("re:(a)\\1"), HasSubstr("ack-reference"));
}

TEST(ModuleFilter, CountsAreBounded) {
  EXPECT_EQ(ErrorOf("re:model\\.layers\\.\\d{1,3}\\.(.{4}){4}"), "no error");
  EXPECT_EQ(ErrorOf("re:a\\{999}"), "no error");  // a literal brace
  EXPECT_THAT(ErrorOf("re:((a?){50}){50}"), HasSubstr("product of its {counts}"));
  EXPECT_THAT(ErrorOf("re:a{1,65}"), HasSubstr("larger than 64"));
  EXPECT_THAT(ErrorOf("re:a{99999999999999999999}"), HasSubstr("larger than 64"));
  EXPECT_THAT(ErrorOf("re:" + std::string(257, 'a')), HasSubstr("257 characters"));
}

// Each of these takes a backtracking matcher longer than the age of the universe, or overflows its
// stack.
TEST(ModuleFilter, HostilePatternsEndQuickly) {
  const std::string name(200, 'a');
  std::string nested;
  for (int i = 0; i < 60; ++i) nested += "(";
  nested += "a";
  for (int i = 0; i < 60; ++i) nested += ")*";
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_FALSE(Matches("re:(a+)+$!", name));
  EXPECT_FALSE(Matches("re:(a|a)*b", name));
  EXPECT_FALSE(Matches("re:(.*)*(.*)*(.*)*!", name));
  EXPECT_FALSE(Matches("re:((a?){8}){8}a*!", name));
  EXPECT_FALSE(Matches("re:" + nested + "!", name));
  EXPECT_TRUE(Matches("re:((((((.?)?)?)?)?)?){64}" + std::string(200, '.'), name));
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  EXPECT_LT(elapsed.count(), 5.0);
}

}  // namespace
}  // namespace octavo
