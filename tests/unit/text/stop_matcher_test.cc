#include "text/stop_matcher.h"

#include <gtest/gtest.h>
#include <octavo/error.h>

#include <random>

namespace octavo {
namespace {

struct Outcome {
  std::string text;
  std::string stop;
  bool operator==(const Outcome&) const = default;
};

Outcome Match(const std::vector<std::string>& stop, const std::vector<std::string>& pieces,
              bool include = false) {
  StopMatcher matcher(stop, include);
  Outcome outcome;
  for (const std::string& piece : pieces) {
    const StopMatcher::Result result = matcher.Push(piece);
    outcome.text += result.text;
    if (result.stopped) {
      outcome.stop = result.stop_string;
      EXPECT_TRUE(matcher.stopped());
      EXPECT_EQ(matcher.Push("more").text, "");
      EXPECT_TRUE(matcher.Push("more").stopped);
      break;
    }
  }
  outcome.text += matcher.Finish();
  return outcome;
}

TEST(StopMatcherTest, FindsStopStringsAcrossPieces) {
  EXPECT_EQ(Match({"</s>"}, {"ab<", "/", "s", ">cd"}), (Outcome{"ab", "</s>"}));
  EXPECT_EQ(Match({"</s>"}, {"ab</s>cd"}), (Outcome{"ab", "</s>"}));
  EXPECT_EQ(Match({"</s>"}, {"ab<", "/", "s", ">cd"}, true), (Outcome{"ab</s>", "</s>"}));
  EXPECT_EQ(Match({"aab"}, {"a", "a", "a", "b"}), (Outcome{"a", "aab"}));
  EXPECT_EQ(Match({"中"}, {"é", "中", "x"}), (Outcome{"é", "中"}));
}

TEST(StopMatcherTest, HoldsBackTheLongestPrefixOnly) {
  StopMatcher matcher(std::vector<std::string>{"\n\nUser:", "abcab"});
  EXPECT_EQ(matcher.Push("one\n").text, "one");
  EXPECT_EQ(matcher.Push("two\n\nUs").text, "\ntwo");
  EXPECT_EQ(matcher.Push("a").text, "\n\nUs");
  EXPECT_EQ(matcher.Push("bcabd").stop_string, "abcab");
}

TEST(StopMatcherTest, ReleasesHeldTextAtTheEnd) {
  StopMatcher matcher(std::vector<std::string>{"STOP"});
  EXPECT_EQ(matcher.Push("no STO").text, "no ");
  EXPECT_EQ(matcher.Finish(), "STO");
  EXPECT_EQ(matcher.Finish(), "");
  EXPECT_EQ(matcher.Push("P").text, "P");
}

TEST(StopMatcherTest, TheFirstCompleteOneWinsThenTheLongest) {
  EXPECT_EQ(Match({"bcd", "c"}, {"abcd"}), (Outcome{"ab", "c"}));
  EXPECT_EQ(Match({"d", "bcd"}, {"abcd"}), (Outcome{"a", "bcd"}));
}

TEST(StopMatcherTest, NoStopStringsReleaseEverything) {
  EXPECT_EQ(Match({}, {"a", "", "b"}), (Outcome{"ab", ""}));
  EXPECT_THROW(StopMatcher(std::vector<std::string>{"a", ""}), Error);
}

// Straight from the rule: the smallest end, then the smallest begin.
Outcome Naive(const std::vector<std::string>& stop, const std::string& text, bool include) {
  for (size_t end = 1; end <= text.size(); ++end) {
    const std::string* best = nullptr;
    for (const std::string& candidate : stop) {
      if (std::string_view(text).substr(0, end).ends_with(candidate) &&
          (best == nullptr || candidate.size() > best->size())) {
        best = &candidate;
      }
    }
    if (best != nullptr) return {text.substr(0, include ? end : end - best->size()), *best};
  }
  return {text, ""};
}

TEST(StopMatcherTest, EqualsTheRuleWhateverThePieces) {
  std::mt19937 random(7);
  const auto word = [&](size_t length) {
    std::string text;
    while (text.size() < length) text += static_cast<char>('a' + random() % 2);
    return text;
  };
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::string> stop(1 + random() % 3);
    for (std::string& item : stop) item = word(1 + random() % 7);
    const std::string text = word(random() % 30);
    std::vector<std::string> pieces;
    for (size_t at = 0; at < text.size();) {
      pieces.push_back(text.substr(at, random() % 5));
      at += pieces.back().size();
    }
    const bool include = random() % 2;
    EXPECT_EQ(Match(stop, pieces, include), Naive(stop, text, include)) << text;
  }
}

}  // namespace
}  // namespace octavo
