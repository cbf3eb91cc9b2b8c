#include "text/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <octavo/error.h>

#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "test_support.h"
#include "text/tokenizer.h"

namespace octavo {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using testing::FixturePath;
using ::testing::HasSubstr;
using testing::TempDir;
using testing::WriteFile;

const std::vector<ChatMessage> kHello = {{.role = "user", .content = "Hello"}};

std::string RenderSource(std::string_view source, const std::vector<ChatMessage>& messages = kHello,
                         const ChatRenderOptions& options = {}) {
  return ChatTemplate::FromSource(source, "test").Render(messages, options);
}

void ExpectError(const auto& action, ErrorCode code, const std::string& text) {
  try {
    action();
    ADD_FAILURE() << "no error: " << text;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_THAT(error.what(), HasSubstr(text));
  }
}

TEST(ChatTemplateTest, EqualsTransformersOnTheFixture) {
  const std::string folder = FixturePath("trained/lm_llama");
  const std::optional<ChatTemplate> chat = ChatTemplate::FromDirectory(folder);
  ASSERT_TRUE(chat.has_value());
  const Tokenizer tokenizer = Tokenizer::FromFile(folder + "/tokenizer.json");
  const json expected = json::parse(testing::ReadWholeFile(folder + "/expected.json"))["chat"];
  ASSERT_FALSE(expected.empty());
  for (const json& item : expected) {
    std::vector<ChatMessage> messages;
    for (const json& message : item["messages"]) {
      messages.push_back({message["role"], message["content"]});
    }
    const std::string text = chat->Render(messages);
    EXPECT_EQ(text, item["text"].get<std::string>());
    EXPECT_EQ(tokenizer.Encode(text, false), item["ids"].get<std::vector<int64_t>>());
  }
}

TEST(ChatTemplateTest, AModelWithoutTemplateHasNone) {
  EXPECT_FALSE(ChatTemplate::FromDirectory(FixturePath("trained/cls_bert")).has_value());
  TempDir folder;
  EXPECT_FALSE(ChatTemplate::FromDirectory(folder.path()).has_value());
}

TEST(ChatTemplateTest, FilesAreFoundInTransformersOrder) {
  TempDir folder;
  WriteFile(folder / "chat_template.json", R"({"chat_template": "legacy"})");
  EXPECT_EQ(ChatTemplate::FromDirectory(folder.path())->Render(kHello), "legacy");
  WriteFile(folder / "tokenizer_config.json", R"({"chat_template": "config {{ bos_token }}",
      "bos_token": {"content": "<s>", "__type": "AddedToken"}, "add_bos_token": true})");
  EXPECT_EQ(ChatTemplate::FromDirectory(folder.path())->Render(kHello), "config <s>");
  WriteFile(folder / "chat_template.jinja", "jinja {{ bos_token }}{{ add_bos_token is defined }}");
  EXPECT_EQ(ChatTemplate::FromDirectory(folder.path())->Render(kHello), "jinja <s>False");
  std::filesystem::create_directory(folder / "additional_chat_templates");
  WriteFile(folder / "additional_chat_templates/tool_use.jinja", "{{ tools | length }} tools");
  const ChatTemplate chat = *ChatTemplate::FromDirectory(folder.path());
  EXPECT_THAT(chat.template_names(), ElementsAre("default", "tool_use"));
  EXPECT_EQ(chat.Render(kHello, {.variables_json = R"({"tools": [{"name": "f"}]})"}), "1 tools");
  EXPECT_EQ(chat.Render(kHello, {.variables_json = R"({"tools": []})"}), "jinja <s>False");
}

TEST(ChatTemplateTest, NamedTemplatesAndSpecialTokens) {
  TempDir folder;
  WriteFile(folder / "tokenizer_config.json", R"({"eos_token": "</s>", "unk_token": null,
      "additional_special_tokens": ["<a>", {"content": "<b>"}],
      "extra_special_tokens": {"image_token": "<image>"},
      "chat_template": [
          {"name": "default", "template": "{{ eos_token }}{{ unk_token is defined }}"},
          {"name": "rag",
           "template": "{{ additional_special_tokens[1] }}{{ image_token }}{{ pad_token }}"}]})");
  WriteFile(folder / "special_tokens_map.json", R"({"pad_token": "<pad>", "eos_token": "no"})");
  const ChatTemplate chat = *ChatTemplate::FromDirectory(folder.path());
  EXPECT_EQ(chat.Render(kHello), "</s>False");
  EXPECT_EQ(chat.Render(kHello, {.template_name = "rag"}), "<b><image><pad>");
  ExpectError([&] { chat.Render(kHello, {.template_name = "x"}); }, ErrorCode::kInvalidArgument,
              "expected one of default, rag, found x");
}

TEST(ChatTemplateTest, DamagedFilesAreNamed) {
  TempDir folder;
  const auto load = [&] { ChatTemplate::FromDirectory(folder.path()); };
  for (const char* text : {"{", "[]", R"({"chat_template": 5})", R"({"chat_template": []})",
                           R"({"chat_template": [{"name": "default"}]})"}) {
    WriteFile(folder / "tokenizer_config.json", text);
    ExpectError(load, ErrorCode::kDataLoss, "tokenizer_config.json");
  }
  WriteFile(folder / "tokenizer_config.json", R"({"chat_template": "a\n{% if x %}"})");
  ExpectError(load, ErrorCode::kInvalidArgument, "tokenizer_config.json: chat template default");
}

TEST(ChatTemplateTest, MessagesVariablesAndGenerationPrompt) {
  const std::string source =
      "{% for m in messages %}[{{ m.role }}]{{ m.content }}\n{% endfor %}"
      "{% if add_generation_prompt %}>{% endif %}{{ tools is none }}{{ mode }}";
  EXPECT_EQ(RenderSource(source, {{"developer", "Be brief."}, {"user", "Grüße <&>"}}),
            "[developer]Be brief.\n[user]Grüße <&>\n>True");
  EXPECT_EQ(RenderSource(source, kHello, {.add_generation_prompt = false}), "[user]Hello\nTrue");
  EXPECT_EQ(RenderSource(source, {}, {.variables_json = R"({"mode": "fast",
                "messages": [{"role": "tool", "content": "7"}]})"}),
            "[tool]7\n>Truefast");
  // Members keep the order in which a request has them.
  EXPECT_EQ(RenderSource("{{ tools[0] | tojson }}", kHello,
                         {.variables_json = R"({"tools": [{"z": 1, "a": {"y": 2.0, "b": []}}]})"}),
            R"({"z": 1, "a": {"y": 2.0, "b": []}})");
}

TEST(ChatTemplateTest, ReasoningGoesByEachName) {
  for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
    const std::string variables = std::string(R"({"messages": [{"role": "assistant", ")") + name +
                                  R"(": "hm", "content": ""}]})";
    EXPECT_EQ(RenderSource("{{ messages[0].reasoning_content }}|{{ messages[0].thinking }}", {},
                           {.variables_json = variables}),
              "hm|hm");
  }
}

TEST(ChatTemplateTest, RefusalsCarryTheTemplatesWords) {
  const std::string source =
      "{% for m in messages %}{% if m.role not in ['system', 'user', 'assistant'] %}"
      "{{ raise_exception('Unexpected role: ' + m.role) }}{% endif %}{{ m.content }}{% endfor %}";
  EXPECT_EQ(RenderSource(source), "Hello");
  ExpectError(
      [&] {
        RenderSource(source, {{"developer", "x"}});
      },
      ErrorCode::kInvalidArgument,
      "the chat template refuses the messages: Unexpected role: developer");
}

TEST(ChatTemplateTest, BadRequestsAreErrors) {
  ExpectError(
      [] {
        RenderSource("{{ messages[0].content }}", {{"user", "\xff"}});
      },
      ErrorCode::kInvalidArgument, "UTF-8");
  for (const char* variables : {"{", "[1]", "\"\\ud800\""}) {
    ExpectError([&] { RenderSource("x", kHello, {.variables_json = variables}); },
                ErrorCode::kInvalidArgument, "variables of the chat template");
  }
  const std::string deep = R"({"a": )" + std::string(1'000'000, '[') + "}";
  ExpectError([&] { RenderSource("x", kHello, {.variables_json = deep}); },
              ErrorCode::kInvalidArgument, "nested deeper");
  std::string wide = "{";
  for (int i = 0; i < 20'000; ++i) wide.append("\"").append(std::to_string(i)).append("\": 0,");
  ExpectError([&] { RenderSource("x", kHello, {.variables_json = wide + "\"a\": 0}"}); },
              ErrorCode::kInvalidArgument, "more than 10000 members");
  ExpectError([] { RenderSource("a\n{{ messages[0].content.nothing.at_all }}"); },
              ErrorCode::kInvalidArgument, "(line 2)");
}

TEST(ChatTemplateTest, HostileTemplatesEndInErrors) {
  const auto repeat = [](std::string_view text, size_t count) {
    std::string result;
    while (count-- > 0) result += text;
    return result;
  };
  const std::vector<std::string> sources = {
      "{{ " + repeat("[", 300'000) + repeat("]", 300'000) + " }}",
      "{{ " + repeat("(", 300'000) + "1" + repeat(")", 300'000) + " }}",
      "{{ " + repeat("-", 300'000) + "1 }}",
      "{{ 1" + repeat("|e", 300'000) + " }}",
      repeat("{% if true %}", 50'000),
      repeat("{% for a in b %}", 50'000),
      "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
      "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
      "{% set n = namespace(x=1) %}{% for a in range(99999) %}{% set n.x = [n.x] %}{% endfor %}",
      "{% set n = namespace() %}{% set n.x = n %}{{ n }}",
      "{% set n = namespace(s='ab') %}{% for i in range(64) %}{% set n.s = n.s + n.s %}{% endfor "
      "%}",
      "{% for i in range(99999) %}{{ 'x' * 100000 }}{% endfor %}",
      "{{ strftime_now('%!') }}",
      "{{ 'x' * 99999999999 }}",
      repeat("x", 2 << 20),
  };
  const auto start = std::chrono::steady_clock::now();
  for (const std::string& source : sources) {
    EXPECT_THROW(RenderSource(source), Error) << source.substr(0, 80);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
}

TEST(ChatTemplateTest, IsUsedByManyThreads) {
  const ChatTemplate chat = ChatTemplate::FromSource("{{ messages[0].content }}", "test");
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&chat, i] {
      for (int n = 0; n < 50; ++n) {
        const std::string text = std::to_string(i * 1000 + n);
        EXPECT_EQ(chat.Render(std::vector<ChatMessage>{{"user", text}}), text);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace octavo
