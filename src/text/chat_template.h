// A model's chat template: the text that a conversation becomes, as transformers renders it.
#pragma once

#include <octavo/llm.h>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

struct textkit_template;

namespace octavo {

struct ChatRenderOptions {
  bool add_generation_prompt = true;
  // Which of several templates; empty: "tool_use" when tools are given and there is one, else
  // "default".
  std::string template_name = {};
  // A JSON object of further variables (tools, documents, enable_thinking, ...), or empty. Its
  // members win over all others, so `messages` may be given here in full where a message is more
  // than a role and text.
  std::string variables_json = {};
};

// Const methods may be called from any number of threads.
class ChatTemplate {
 public:
  // Looks where transformers looks, first found wins: chat_template.jinja (with
  // additional_chat_templates/*.jinja), tokenizer_config.json's chat_template, chat_template.json.
  // Nullopt when the model has none. Throws Error naming the file.
  static std::optional<ChatTemplate> FromDirectory(const std::string& directory);

  // One template from its source; `name` stands for it in messages, `variables_json` is a JSON
  // object of variables such as bos_token, or empty.
  static ChatTemplate FromSource(std::string_view source, const std::string& name,
                                 const std::string& variables_json = "");

  // Throws kInvalidArgument when the template refuses the messages (raise_exception: the message
  // ends in its words) or fails on them, kResourceExhausted when it exceeds its budget of work.
  std::string Render(std::span<const ChatMessage> messages,
                     const ChatRenderOptions& options = {}) const;

  std::vector<std::string> template_names() const;

 private:
  struct Free {
    void operator()(textkit_template* chat_template) const;
  };
  struct NamedTemplate {
    std::string name;
    std::string source;  // file or other origin, for messages
    std::unique_ptr<textkit_template, Free> handle;
  };

  ChatTemplate() = default;
  void Add(const std::string& name, std::string_view text, const std::string& source);
  const NamedTemplate* Find(std::string_view name) const;
  const NamedTemplate& Choose(const std::string& name, bool has_tools) const;

  std::vector<NamedTemplate> templates_;
  std::string variables_json_ = "{}";  // bos_token, eos_token and the like
};

}  // namespace octavo
