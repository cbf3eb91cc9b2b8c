#include "text/chat_template.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/file.h"
#include "text/textkit_call.h"

namespace octavo {
namespace {

namespace fs = std::filesystem;
// Members keep their order: a template may print them.
using Json = nlohmann::ordered_json;

constexpr const char* kDefaultName = "default";
constexpr const char* kToolUseName = "tool_use";

// Copying and writing JSON recurses, so its depth is bounded here; textkit takes 128 levels.
constexpr int kMaxJsonDepth = 120;
// Objects that keep their order are searched from front to back.
constexpr int kMaxObjectMembers = 10'000;

// A JSON object from `text`; `code` says whose fault it is when it is not one.
Json ParseObject(std::string_view text, const std::string& name, ErrorCode code) {
  std::vector<int> members(kMaxJsonDepth + 2);  // of the object that is open at each depth
  const auto bounded = [&](int depth, Json::parse_event_t event, Json&) {
    if (depth > kMaxJsonDepth) {
      throw Error(code,
                  fmt::format("{}: JSON is nested deeper than {} levels", name, kMaxJsonDepth));
    }
    if (event == Json::parse_event_t::object_start) members[depth + 1] = 0;
    if (event == Json::parse_event_t::key && ++members[depth] > kMaxObjectMembers) {
      throw Error(code,
                  fmt::format("{}: an object has more than {} members", name, kMaxObjectMembers));
    }
    return true;
  };
  Json parsed;
  try {
    parsed = Json::parse(text, bounded);
  } catch (const nlohmann::json::exception& error) {
    throw Error(code, fmt::format("{}: not valid JSON: {}", name, error.what()));
  }
  if (!parsed.is_object()) {
    throw Error(code,
                fmt::format("{}: expected a JSON object, found {}", name, parsed.type_name()));
  }
  return parsed;
}

Json ReadObject(const std::string& path) {
  return ParseObject(ReadTextFile(path), path, ErrorCode::kDataLoss);
}

// A token as tokenizer_config.json has it: a string, or an object with its content.
const std::string* TokenText(const Json& token) {
  if (token.is_string()) return token.get_ptr<const std::string*>();
  if (token.is_object()) {
    const auto content = token.find("content");
    if (content != token.end() && content->is_string()) {
      return content->get_ptr<const std::string*>();
    }
  }
  return nullptr;
}

void AddIfAbsent(Json* object, const std::string& key, Json value) {
  if (!object->contains(key)) (*object)[key] = std::move(value);
}

// Adds bos_token, eos_token and the other named tokens, which templates use as variables. Flags
// such as "add_bos_token": true look alike and are left out.
void AddTokens(const Json& config, Json* variables) {
  for (const auto& [key, value] : config.items()) {
    if (key.ends_with("_token")) {
      if (const std::string* text = TokenText(value)) AddIfAbsent(variables, key, *text);
    } else if ((key == "additional_special_tokens" || key == "extra_special_tokens") &&
               value.is_array()) {
      Json tokens = Json::array();
      for (const Json& token : value) {
        if (const std::string* text = TokenText(token)) tokens.push_back(*text);
      }
      AddIfAbsent(variables, key, std::move(tokens));
    } else if (key == "extra_special_tokens" && value.is_object()) {
      AddTokens(value, variables);  // model-specific names: {"image_token": "<image>"}
    }
  }
}

// Reasoning goes by three names; templates read the first or the second, as in transformers.
void AliasReasoning(Json* messages) {
  if (!messages->is_array()) return;
  for (Json& message : *messages) {
    if (!message.is_object()) continue;
    for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
      const auto found = message.find(name);
      if (found == message.end() || found->is_null()) continue;
      const Json reasoning = *found;
      AddIfAbsent(&message, "thinking", reasoning);
      message["reasoning_content"] = reasoning;
      break;
    }
  }
}

Json MessagesToJson(std::span<const ChatMessage> messages) {
  Json list = Json::array();
  for (const ChatMessage& message : messages) {
    list.push_back({{"role", message.role}, {"content", message.content}});
  }
  return list;
}

}  // namespace

void ChatTemplate::Free::operator()(textkit_template* chat_template) const {
  textkit_template_free(chat_template);
}

std::optional<ChatTemplate> ChatTemplate::FromDirectory(const std::string& directory) {
  const fs::path root(directory);
  ChatTemplate result;
  Json variables = Json::object();
  Json config = Json::object();
  const std::string config_path = (root / "tokenizer_config.json").string();
  if (HasEntry(config_path)) config = ReadObject(config_path);
  AddTokens(config, &variables);
  const std::string map_path = (root / "special_tokens_map.json").string();
  if (HasEntry(map_path)) AddTokens(ReadObject(map_path), &variables);
  result.variables_json_ = variables.dump();

  const std::string jinja_path = (root / "chat_template.jinja").string();
  if (HasEntry(jinja_path)) result.Add(kDefaultName, ReadTextFile(jinja_path), jinja_path);
  const fs::path more = root / "additional_chat_templates";
  std::error_code ignored;
  std::vector<fs::path> files;
  for (fs::directory_iterator entry(more, ignored), end; !ignored && entry != end;
       entry.increment(ignored)) {
    if (entry->path().extension() == ".jinja") files.push_back(entry->path());
  }
  std::sort(files.begin(), files.end());
  for (const fs::path& file : files) {
    result.Add(file.stem().string(), ReadTextFile(file.string()), file.string());
  }
  if (!result.templates_.empty()) return result;

  const std::string legacy_path = (root / "chat_template.json").string();
  std::string source = config_path;
  auto found = config.find("chat_template");
  if ((found == config.end() || found->is_null()) && HasEntry(legacy_path)) {
    source = legacy_path;
    config = ReadObject(legacy_path);
    found = config.find("chat_template");
  }
  if (found == config.end() || found->is_null()) return std::nullopt;
  if (found->is_string()) {
    result.Add(kDefaultName, found->get_ref<const std::string&>(), source);
    return result;
  }
  const auto refuse = [&] {
    throw Error(ErrorCode::kDataLoss,
                fmt::format("{}: chat_template: expected a string or a list of objects with the "
                            "strings name and template",
                            source));
  };
  if (!found->is_array() || found->empty()) refuse();
  for (const Json& entry : *found) {
    const auto text = [&](const char* key) -> const std::string& {
      if (!entry.is_object() || !entry.contains(key) || !entry[key].is_string()) refuse();
      return entry[key].get_ref<const std::string&>();
    };
    result.Add(text("name"), text("template"), source);
  }
  return result;
}

ChatTemplate ChatTemplate::FromSource(std::string_view source, const std::string& name,
                                      const std::string& variables_json) {
  ChatTemplate result;
  result.Add(kDefaultName, source, name);
  if (!variables_json.empty()) {
    result.variables_json_ = ParseObject(variables_json, name, ErrorCode::kInvalidArgument).dump();
  }
  return result;
}

void ChatTemplate::Add(const std::string& name, std::string_view text, const std::string& source) {
  textkit_template* handle = nullptr;
  CheckTextkit(textkit_template_new(Bytes(text), text.size(), &handle),
               fmt::format("{}: chat template {}", source, name));
  templates_.push_back({name, source, std::unique_ptr<textkit_template, Free>(handle)});
}

const ChatTemplate::NamedTemplate* ChatTemplate::Find(std::string_view name) const {
  for (const NamedTemplate& entry : templates_) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
}

const ChatTemplate::NamedTemplate& ChatTemplate::Choose(const std::string& name,
                                                        bool has_tools) const {
  const NamedTemplate* chosen = nullptr;
  if (!name.empty()) {
    chosen = Find(name);
  } else {
    if (has_tools) chosen = Find(kToolUseName);
    if (chosen == nullptr) chosen = Find(kDefaultName);
  }
  if (chosen != nullptr) return *chosen;
  std::string known;
  for (const NamedTemplate& entry : templates_) {
    known += fmt::format("{}{}", known.empty() ? "" : ", ", entry.name);
  }
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("chat template: expected one of {}, found {}", known,
                          name.empty() ? kDefaultName : name));
}

std::string ChatTemplate::Render(std::span<const ChatMessage> messages,
                                 const ChatRenderOptions& options) const {
  // Templates ask whether tools and documents are none, so both are always there.
  Json context = {{"messages", MessagesToJson(messages)},
                  {"tools", nullptr},
                  {"documents", nullptr},
                  {"add_generation_prompt", options.add_generation_prompt}};
  std::string context_text;
  try {
    context.update(Json::parse(variables_json_));
    if (!options.variables_json.empty()) {
      context.update(ParseObject(options.variables_json, "variables of the chat template",
                                 ErrorCode::kInvalidArgument));
    }
    AliasReasoning(&context["messages"]);
    context_text = context.dump();
  } catch (const nlohmann::json::exception& error) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("messages for the chat template: {}", error.what()));
  }
  const NamedTemplate& chosen =
      Choose(options.template_name, context["tools"].is_array() && !context["tools"].empty());
  textkit_bytes text{};
  const textkit_status status =
      textkit_template_render(chosen.handle.get(), Bytes(context_text), context_text.size(), &text);
  CheckTextkit(status, status == TEXTKIT_RAISED_BY_TEMPLATE
                           ? std::string("the chat template refuses the messages")
                           : fmt::format("{}: chat template {}", chosen.source, chosen.name));
  return TakeString(text);
}

std::vector<std::string> ChatTemplate::template_names() const {
  std::vector<std::string> names;
  for (const NamedTemplate& entry : templates_) names.push_back(entry.name);
  return names;
}

}  // namespace octavo
