#include "checkpoint/hf_config.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "checkpoint/generation_config.h"
#include "expect_error.h"
#include "test_support.h"

namespace octavo {
namespace {

using testing::ExpectError;

HfConfig Parse(std::string_view json) { return HfConfig::FromText(json, "dir/config.json"); }

TEST(HfConfig, ReadsFieldsByType) {
  const HfConfig config = Parse(R"({"i":-3,"f":0.5,"s":"x","b":true,"n":null,"l":[1,2],"fl":[1,2.5],
                                    "sl":["a","b"],"o":{"i":7,"o":{"i":8}},"m":{"k":"v"}})");
  EXPECT_EQ(config.Int("i"), -3);
  EXPECT_EQ(config.Float("i"), -3.0);
  EXPECT_EQ(config.Float("f"), 0.5);
  EXPECT_EQ(config.String("s"), "x");
  EXPECT_TRUE(config.Bool("b", false));
  EXPECT_TRUE(config.Has("i"));
  EXPECT_FALSE(config.Has("n"));
  EXPECT_FALSE(config.Has("missing"));
  EXPECT_EQ(config.Int("n", 5), 5);
  EXPECT_EQ(config.Float("missing", 1.5), 1.5);
  EXPECT_EQ(config.String("missing", "d"), "d");
  EXPECT_EQ(config.IntList("l"), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(config.IntList("i"), (std::vector<int64_t>{-3}));
  EXPECT_TRUE(config.IntList("n").empty());
  EXPECT_EQ(config.FloatList("fl"), (std::vector<double>{1, 2.5}));
  EXPECT_EQ(config.StringList("sl"), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(config.StringMap("m").at("k"), "v");
  EXPECT_FALSE(config.Object("n").has_value());
  EXPECT_EQ(config.Object("o")->Object("o")->Int("i"), 8);
  EXPECT_EQ(config.Size("missing", 4, 10), 4);
}

TEST(HfConfig, AnObjectOutlivesTheConfigItCameFrom) {
  std::optional<HfConfig> inner;
  {
    const HfConfig config = Parse(R"({"o":{"s":"kept"}})");
    inner = config.Object("o");
  }
  EXPECT_EQ(inner->String("s"), "kept");
}

TEST(HfConfig, ErrorsNameFileFieldExpectedAndFound) {
  const HfConfig config =
      Parse(R"({"i":1.5,"s":3,"b":1,"l":[1,"x"],"o":{"factor":"two"},"big":9223372036854775808,
                                    "z":0,"n":null,"sl":"x"})");
  const auto refuses = [](std::vector<std::string> says, auto&& call) {
    says.push_back("dir/config.json: ");
    ExpectError(ErrorCode::kInvalidArgument, says, call);
  };
  refuses({"missing: expected an integer, found nothing"}, [&] { config.Int("missing"); });
  refuses({"n: expected a number, found nothing"}, [&] { config.Float("n"); });
  refuses({"i: expected an integer, found 1.5"}, [&] { config.Int("i"); });
  refuses({"i: expected an integer, found 1.5"}, [&] { config.Int("i", 3); });
  refuses({"s: expected a string, found 3"}, [&] { config.String("s"); });
  refuses({"s: expected a string, found 3"}, [&] { config.String("s", ""); });
  refuses({"b: expected true or false, found 1"}, [&] { config.Bool("b", true); });
  refuses({"l: expected an integer or a list of integers, found \"x\""},
          [&] { config.IntList("l"); });
  refuses({"l: expected a list of numbers, found \"x\""}, [&] { config.FloatList("l"); });
  refuses({"sl: expected a list of strings, found \"x\""}, [&] { config.StringList("sl"); });
  refuses({"big: expected an integer of 64 bits"}, [&] { config.Int("big"); });
  refuses({"i: expected an object, found 1.5"}, [&] { config.Object("i"); });
  refuses({"o.factor: expected a number, found \"two\""},
          [&] { config.Object("o")->Float("factor"); });
  refuses({"z: expected an integer from 1 to 9, found 0"}, [&] { config.Size("z", 9); });
  refuses({"z: expected an integer from 1 to 9, found 0"}, [&] { config.Size("z", 3, 9); });
}

TEST(HfConfig, RefusesWhatIsNotAnObject) {
  ExpectError(ErrorCode::kDataLoss, {"dir/config.json", "line 1, column 5"},
              [] { Parse("{\"a\"}"); });
  ExpectError(ErrorCode::kDataLoss, {"expected a JSON object, found [1]"}, [] { Parse("[1]"); });
  ExpectError(ErrorCode::kDataLoss, {"not valid JSON"}, [] { Parse(""); });
  ExpectError(ErrorCode::kDataLoss, {"zero byte at byte 3"},
              [] { Parse(std::string_view("{}\0x", 4)); });
  ExpectError(ErrorCode::kDataLoss, {"UTF-8"}, [] { Parse("{\"\xff\":1}"); });
  ExpectError(ErrorCode::kDataLoss, {"key \"a\" given twice"},
              [] { Parse(R"({"o":{"a":1,"a":2}})"); });
  EXPECT_EQ(Parse(R"({"o":{"a":1},"a":2})").Int("a"), 2);
  // Deep nesting takes no stack: neither here nor where a message shows the value.
  const auto nested = [](size_t depth) {
    return "{\"a\":" + std::string(depth, '[') + std::string(depth, ']') + "}";
  };
  EXPECT_TRUE(Parse(nested(100)).Has("a"));
  ExpectError(ErrorCode::kDataLoss, {"dir/config.json", "nested more than 120 levels"},
              [&] { Parse(nested(1'000'000)); });
  ExpectError(ErrorCode::kNotFound, {"no.json"}, [] { HfConfig::FromFile("/no/such/no.json"); });
}

TEST(GenerationConfig, UnitesTheEosOfBothFiles) {
  testing::TempDir folder;
  const HfConfig config = Parse(R"({"eos_token_id":7,"bos_token_id":1,"pad_token_id":-1})");
  GenerationConfig absent = GenerationConfig::FromDirectory(folder.path(), config);
  EXPECT_EQ(absent.eos_token_ids, std::vector<int64_t>{7});
  EXPECT_EQ(absent.bos_token_id, 1);
  EXPECT_FALSE(absent.pad_token_id.has_value());
  EXPECT_FALSE(absent.temperature.has_value());

  testing::WriteFile(folder / "generation_config.json",
                     R"({"eos_token_id":[9,7,3],"bos_token_id":2,"pad_token_id":0,"do_sample":true,
                         "temperature":0.6,"top_k":20,"top_p":0.95,"min_p":0.0,"repetition_penalty":1.1})");
  const GenerationConfig both = GenerationConfig::FromDirectory(folder.path(), config);
  EXPECT_EQ(both.eos_token_ids, (std::vector<int64_t>{3, 7, 9}));
  EXPECT_EQ(both.bos_token_id, 2);
  EXPECT_EQ(both.pad_token_id, 0);
  EXPECT_EQ(both.do_sample, true);
  EXPECT_EQ(both.temperature, 0.6);
  EXPECT_EQ(both.top_k, 20);
  EXPECT_EQ(both.top_p, 0.95);
  EXPECT_EQ(both.min_p, 0.0);
  EXPECT_EQ(both.repetition_penalty, 1.1);

  const GenerationConfig fixture = GenerationConfig::FromDirectory(
      testing::FixturePath("storage/plain"),
      HfConfig::FromFile(testing::FixturePath("storage/plain/config.json")));
  EXPECT_EQ(fixture.eos_token_ids, std::vector<int64_t>{2});
  EXPECT_FALSE(fixture.temperature.has_value());
}

TEST(GenerationConfig, RefusesValuesOutOfRange) {
  testing::TempDir folder;
  const auto refuses = [&](ErrorCode code, const std::string& json, std::vector<std::string> says) {
    says.push_back(folder / "generation_config.json");
    testing::WriteFile(folder / "generation_config.json", json);
    ExpectError(code, says, [&] { GenerationConfig::FromDirectory(folder.path(), Parse("{}")); });
  };
  refuses(ErrorCode::kInvalidArgument, R"({"temperature":-1})",
          {"temperature: expected a number >= 0, found -1"});
  refuses(ErrorCode::kInvalidArgument, R"({"top_p":1.5})",
          {"top_p: expected a number in (0, 1], found 1.5"});
  refuses(ErrorCode::kInvalidArgument, R"({"min_p":2})", {"min_p"});
  refuses(ErrorCode::kInvalidArgument, R"({"repetition_penalty":0})", {"repetition_penalty"});
  refuses(ErrorCode::kInvalidArgument, R"({"top_k":-2})",
          {"top_k: expected an integer >= -1, found -2"});
  refuses(ErrorCode::kInvalidArgument, R"({"eos_token_id":"</s>"})", {"eos_token_id"});
  refuses(ErrorCode::kDataLoss, "{", {"not valid JSON"});
  std::filesystem::remove(folder / "generation_config.json");
  std::filesystem::create_symlink("gone", folder / "generation_config.json");
  ExpectError(ErrorCode::kNotFound, {"generation_config.json", "symbolic link"},
              [&] { GenerationConfig::FromDirectory(folder.path(), Parse("{}")); });
}

}  // namespace
}  // namespace octavo
