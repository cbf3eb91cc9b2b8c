// `octavo run`: answers one prompt.
#include <fmt/format.h>
#include <octavo/llm.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "apps/cli_options.h"
#include "apps/commands.h"
#include "apps/exit_status.h"
#include "apps/terminal.h"

namespace octavo {
namespace {

using Json = nlohmann::ordered_json;

struct RunFlags {
  ModelFlags model;
  GenerationFlags generation;
  std::optional<std::string> prompt;
  std::string system;
  bool raw = false;
  bool json = false;
  std::optional<int64_t> logprobs;
};

std::string PromptOf(const RunFlags& flags) {
  const bool from_input = !flags.prompt || *flags.prompt == "-";
  if (!flags.prompt && InputIsTerminal()) {
    throw Error(ErrorCode::kInvalidArgument,
                "no prompt: expected --prompt TEXT, or text on standard input");
  }
  std::string prompt = from_input ? ReadInput() : *flags.prompt;
  if (prompt.empty()) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("the prompt is empty ({})", from_input ? "standard input" : "--prompt"));
  }
  return prompt;
}

double PerSecond(size_t count, double seconds) {
  return seconds > 0 ? static_cast<double>(count) / seconds : 0;
}

// Tokens after the first, which decode_seconds is for.
size_t DecodedTokens(const Completion& completion) {
  return completion.token_ids.empty() ? 0 : completion.token_ids.size() - 1;
}

const char* FinishName(FinishReason reason) {
  return reason == FinishReason::kLength ? "length" : "stop";
}

std::string JsonText(const RunFlags& flags, const Completion& completion, double load_seconds) {
  Json logprobs = nullptr;
  if (flags.logprobs) {
    logprobs = Json::array();
    for (const std::vector<TokenLogprob>& step : completion.logprobs) {
      Json tokens = Json::array();
      for (const TokenLogprob& token : step) {
        tokens.push_back(
            {{"token_id", token.token_id}, {"text", token.text}, {"logprob", token.logprob}});
      }
      logprobs.push_back(std::move(tokens));
    }
  }
  const Json json = {
      {"model", flags.model.model},
      {"text", completion.text},
      {"finish_reason", FinishName(completion.finish_reason)},
      {"stop_reason",
       completion.stop_reason.empty() ? Json(nullptr) : Json(completion.stop_reason)},
      {"token_ids", completion.token_ids},
      {"prompt_token_ids", completion.prompt_token_ids},
      {"logprobs", logprobs},
      {"load_s", load_seconds},
      {"prefill_s", completion.prefill_seconds},
      {"decode_s", completion.decode_seconds},
      {"prefill_tokens_per_s",
       PerSecond(completion.prompt_token_ids.size(), completion.prefill_seconds)},
      {"decode_tokens_per_s", PerSecond(DecodedTokens(completion), completion.decode_seconds)}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

// One line per token: the chosen one, then the most likely ones.
std::string LogprobsText(const Completion& completion) {
  std::string text;
  for (const std::vector<TokenLogprob>& step : completion.logprobs) {
    for (size_t i = 0; i < step.size(); ++i) {
      text += fmt::format("{}{} {} {:.4f}",
                          i == 0   ? ""
                          : i == 1 ? "  of  "
                                   : "  ",
                          Json(step[i].text).dump(-1, ' ', false, Json::error_handler_t::replace),
                          step[i].token_id, step[i].logprob);
    }
    text += '\n';
  }
  return text;
}

Completion Generate(LLM& llm, const RunFlags& flags, const std::string& prompt,
                    const SamplingParams& params, const TextCallback& on_text) {
  if (flags.raw || (!llm.has_chat_template() && flags.system.empty())) {
    if (!flags.raw && !flags.model.quiet) {
      WriteMessage("the model has no chat template: the prompt is completed as it stands");
    }
    return llm.Generate(prompt, params, on_text);
  }
  std::vector<ChatMessage> messages;
  if (!flags.system.empty()) messages.push_back({.role = "system", .content = flags.system});
  messages.push_back({.role = "user", .content = prompt});
  return llm.Chat(messages, params, on_text);
}

int Run(const RunFlags& flags) {
  SamplingParams program_defaults = ProgramSamplingDefaults();
  program_defaults.logprobs = flags.logprobs;
  ApplyGenerationFlags(flags.generation,
                       program_defaults);  // a bad flag is said before the model loads
  const std::string prompt = PromptOf(flags);
  ShowLibraryMessages(flags.model.quiet);

  const auto start = std::chrono::steady_clock::now();
  LLM llm(ToLLMOptions(flags.model, flags.generation));
  const double load_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const SamplingParams params =
      ApplyGenerationFlags(flags.generation, llm.default_sampling_params(program_defaults));

  const InterruptGuard interrupt;
  const Completion completion = Generate(llm, flags, prompt, params, [&](std::string_view piece) {
    if (!flags.json) WriteOutput(piece);
    return !interrupt.interrupted();
  });
  if (flags.json) {
    WriteOutput(JsonText(flags, completion, load_seconds));
  } else {
    if (!completion.text.ends_with('\n')) WriteOutput("\n");
    if (flags.logprobs) WriteOutput(LogprobsText(completion));
  }
  if (!flags.model.quiet) {
    WriteMessage(fmt::format(
        "[{} prompt tokens, {:.1f}/s; {} tokens, {:.1f}/s; {}]", completion.prompt_token_ids.size(),
        PerSecond(completion.prompt_token_ids.size(), completion.prefill_seconds),
        completion.token_ids.size(),
        PerSecond(DecodedTokens(completion), completion.decode_seconds),
        interrupt.interrupted() ? "interrupted" : FinishName(completion.finish_reason)));
  }
  return interrupt.interrupted() ? kExitInterrupted : kExitSuccess;
}

}  // namespace

void AddRunCommand(CLI::App& app, Action& action) {
  const auto flags = std::make_shared<RunFlags>();
  CLI::App* command = app.add_subcommand("run", "Answer one prompt");
  AddModelFlags(*command, flags->model);
  command->add_option("-p,--prompt", flags->prompt,
                      "The prompt; - or none: standard input, without the newline at its end");
  CLI::Option* system = command->add_option("--system", flags->system, "System message");
  command
      ->add_flag("--raw", flags->raw, "Complete the prompt as it stands, without the chat template")
      ->excludes(system);
  command->add_flag("--json", flags->json, "Print the result as JSON when it is complete");
  command->add_option(
      "--logprobs", flags->logprobs,
      "Report the log-probabilities of this many of the likeliest tokens at each step");
  AddGenerationFlags(*command, flags->generation);
  command->callback([flags, &action] { action = [flags] { return Run(*flags); }; });
}

}  // namespace octavo
