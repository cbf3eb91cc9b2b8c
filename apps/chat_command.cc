// `octavo chat`: a conversation, line by line.
#include <octavo/llm.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/cli_options.h"
#include "apps/commands.h"
#include "apps/exit_status.h"
#include "apps/terminal.h"

namespace octavo {
namespace {

struct ChatFlags {
  ModelFlags model;
  GenerationFlags generation;
  std::string system;
};

constexpr const char* kHelp =
    "/reset starts a new conversation, /exit (or Ctrl-D) ends; Ctrl-C stops an answer.";

class Conversation {
 public:
  Conversation(LLM& llm, const SamplingParams& params, const std::string& system)
      : llm_(llm), params_(params), system_(system) {
    Reset();
  }

  void Reset() {
    messages_.clear();
    if (!system_.empty()) messages_.push_back({.role = "system", .content = system_});
  }

  // Writes the answer as it comes. A message that is refused does not stay in the conversation.
  void Ask(const std::string& text, const InterruptGuard& interrupt) {
    messages_.push_back({.role = "user", .content = text});
    try {
      Completion answer = llm_.Chat(messages_, params_, [&](std::string_view piece) {
        WriteOutput(piece);
        return !interrupt.interrupted();
      });
      if (!answer.text.ends_with('\n')) WriteOutput("\n");
      messages_.push_back({.role = "assistant", .content = std::move(answer.text)});
    } catch (...) {
      messages_.pop_back();
      throw;
    }
  }

 private:
  LLM& llm_;
  const SamplingParams& params_;
  const std::string& system_;
  std::vector<ChatMessage> messages_;
};

int Chat(const ChatFlags& flags) {
  ApplyGenerationFlags(flags.generation, ProgramSamplingDefaults());
  ShowLibraryMessages(flags.model.quiet);
  LLM llm(ToLLMOptions(flags.model, flags.generation));
  if (!llm.has_chat_template()) {
    throw Error(
        ErrorCode::kInvalidArgument,
        flags.model.model + ": the model has no chat template; `octavo run --raw` completes text");
  }
  const SamplingParams params = ApplyGenerationFlags(
      flags.generation, llm.default_sampling_params(ProgramSamplingDefaults()));
  const bool interactive = InputIsTerminal();
  const bool prompting = interactive && OutputIsTerminal();
  if (interactive && !flags.model.quiet) WriteMessage(kHelp);

  Conversation conversation(llm, params, flags.system);
  InterruptGuard interrupt;
  while (true) {
    if (prompting) WriteOutput("> ");
    const std::optional<std::string> line = ReadInputLine();
    if (!line || *line == "/exit" || *line == "/quit") break;
    if (line->empty()) continue;
    if (*line == "/help") {
      WriteMessage(kHelp);
      continue;
    }
    if (*line == "/reset") {
      conversation.Reset();
      continue;
    }
    try {
      conversation.Ask(*line, interrupt);
    } catch (const Error& error) {
      // For a person, a message that is too long is no reason to lose the conversation.
      if (!interactive || error.code() != ErrorCode::kInvalidArgument) throw;
      WriteError(error.what());
      WriteMessage("The message was dropped; /reset starts a new conversation.");
    }
    if (interrupt.interrupted() && !interactive) break;
    interrupt.Reset();
  }
  if (prompting) WriteOutput("\n");
  return interrupt.interrupted() ? kExitInterrupted : kExitSuccess;
}

}  // namespace

void AddChatCommand(CLI::App& app, Action& action) {
  const auto flags = std::make_shared<ChatFlags>();
  CLI::App* command =
      app.add_subcommand("chat", "Talk to the model: each line of input is a message");
  AddModelFlags(*command, flags->model);
  command->add_option("--system", flags->system, "System message");
  AddGenerationFlags(*command, flags->generation);
  command->callback([flags, &action] { action = [flags] { return Chat(*flags); }; });
}

}  // namespace octavo
