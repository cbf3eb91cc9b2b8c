// `octavo logits`: the logits of given token ids, file to file; for tests and evaluations. Needs no
// tokenizer.
#include <fmt/format.h>
#include <octavo/error.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/cli_options.h"
#include "apps/commands.h"
#include "apps/exit_status.h"
#include "apps/terminal.h"
#include "checkpoint/safetensors_file.h"
#include "engine/loaded_model.h"
#include "engine/sequence_runner.h"

namespace octavo {
namespace {

constexpr std::string_view kInputPrefix = "input_ids.";

struct LogitsFlags {
  ModelFlags model;
  std::string input;
  std::string output;
  bool hidden_states = false;
};

struct Prompt {
  std::string tensor;           // "input_ids.0"
  std::vector<int64_t> ids;     // as they are stored
  std::vector<int32_t> tokens;  // once checked against the vocabulary
};

// N of "input_ids.N", nullopt for another name.
std::optional<uint64_t> PromptNumber(std::string_view name) {
  if (!name.starts_with(kInputPrefix)) return std::nullopt;
  name.remove_prefix(kInputPrefix.size());
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (error != std::errc() || end != name.data() + name.size()) return std::nullopt;
  return number;
}

// The prompts of a file by N.
std::map<uint64_t, Prompt> ReadPrompts(const std::string& path) {
  const SafetensorsFile file(path);
  std::map<uint64_t, Prompt> prompts;
  for (const TensorEntry& tensor : file.tensors()) {
    const std::optional<uint64_t> number = PromptNumber(tensor.name);
    if (!number) continue;
    if (tensor.dtype != DType::kS64 || tensor.shape.size() != 1 || tensor.shape[0] < 1) {
      throw Error(
          ErrorCode::kInvalidArgument,
          fmt::format("{}: tensor {}: expected I64 [tokens] with at least one token, found {} {}",
                      path, tensor.name, SafetensorsName(tensor.dtype), ToString(tensor.shape)));
    }
    std::vector<int64_t> ids(static_cast<size_t>(tensor.shape[0]));
    file.file().ReadAt(tensor.offset, std::as_writable_bytes(std::span(ids)));
    if (!prompts.emplace(*number, Prompt{tensor.name, std::move(ids), {}}).second) {
      throw Error(
          ErrorCode::kInvalidArgument,
          fmt::format("{}: tensor {}: prompt {} is there twice", path, tensor.name, *number));
    }
  }
  if (prompts.empty()) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("{}: no tensor named input_ids.N (input_ids.0, input_ids.1, ...)", path));
  }
  return prompts;
}

// Dynamic rope is made for sequences beyond max_position_embeddings; others have no meaning there.
bool HasContextLimit(const Graph& graph) {
  return std::none_of(graph.ropes().begin(), graph.ropes().end(),
                      [](const RopeParameters& rope) { return rope.type == RopeType::kDynamic; });
}

// Fills in `tokens`. Throws kInvalidArgument naming the tensor.
void CheckPrompts(const std::string& path, const Graph& graph,
                  std::map<uint64_t, Prompt>& prompts) {
  for (auto& [number, prompt] : prompts) {
    const auto length = static_cast<int64_t>(prompt.ids.size());
    if (length > graph.context_length() && HasContextLimit(graph)) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("{}: tensor {}: {} tokens are more than the model's context of {}",
                              path, prompt.tensor, length, graph.context_length()));
    }
    for (size_t i = 0; i < prompt.ids.size(); ++i) {
      if (prompt.ids[i] >= 0 && prompt.ids[i] < graph.vocab_size()) continue;
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("{}: tensor {}: id {} at position {} is outside the vocabulary of {}",
                              path, prompt.tensor, prompt.ids[i], i, graph.vocab_size()));
    }
    prompt.tokens.assign(prompt.ids.begin(), prompt.ids.end());
  }
}

// Said before the work is done rather than after it; the writing itself may still fail.
void CheckWritable(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  const std::string name = folder.empty() ? "." : folder.string();
  if (access(name.c_str(), W_OK) != 0) {
    throw Error(ErrorCode::kUnavailable,
                fmt::format("{}: cannot be written: {}: {}", path, name, std::strerror(errno)));
  }
}

// A tensor of the output file with the memory behind it.
struct OutputTensor {
  Shape shape;
  std::vector<float> values;
};

class LogitsRun {
 public:
  LogitsRun(LoadedModel& model, const std::map<uint64_t, Prompt>& prompts)
      : prompts_(prompts), vocab_(model.graph().vocab_size()), runner_(model, Longest(prompts)) {}

  void Run(bool hidden_states) {
    bool first = true;
    for (const auto& [number, prompt] : prompts_) {
      if (first && hidden_states) CollectHiddenStates();
      RunPrompt(number, prompt);
      runner_.on_hidden_state = {};
      first = false;
    }
  }

  void Write(const std::string& path) const {
    std::vector<TensorToWrite> tensors;
    for (const auto& [name, tensor] : outputs_) {
      tensors.push_back({name, DType::kF32, tensor.shape, std::as_bytes(std::span(tensor.values))});
    }
    WriteSafetensors(path, tensors);
  }

 private:
  static int64_t Longest(const std::map<uint64_t, Prompt>& prompts) {
    size_t longest = 0;
    for (const auto& [number, prompt] : prompts) longest = std::max(longest, prompt.tokens.size());
    return static_cast<int64_t>(longest);
  }

  void RunPrompt(uint64_t number, const Prompt& prompt) {
    OutputTensor& logits = outputs_[fmt::format("logits.{}", number)];
    logits.shape = {static_cast<int64_t>(prompt.tokens.size()), vocab_};  // [tokens, vocab]
    logits.values.reserve(prompt.tokens.size() * static_cast<size_t>(vocab_));
    runner_.RunPrompt(prompt.tokens, [&](int64_t, std::span<const float> rows) {
      logits.values.insert(logits.values.end(), rows.begin(), rows.end());
    });
  }

  void CollectHiddenStates() {
    runner_.on_hidden_state = [this](int64_t layer, const float* values, int64_t rows,
                                     int64_t width) {
      OutputTensor& hidden = outputs_[fmt::format("hidden.{}", layer)];
      hidden.values.insert(hidden.values.end(), values, values + rows * width);
      hidden.shape = {static_cast<int64_t>(hidden.values.size()) / width,
                      width};  // [tokens, width]
    };
  }

  const std::map<uint64_t, Prompt>& prompts_;
  int64_t vocab_;
  SequenceRunner runner_;
  std::map<std::string, OutputTensor> outputs_;
};

int WriteLogits(const LogitsFlags& flags) {
  ShowLibraryMessages(flags.model.quiet);
  std::map<uint64_t, Prompt> prompts = ReadPrompts(flags.input);
  CheckWritable(flags.output);
  const auto show = ProgressLine(flags.model.quiet);
  LoadProgressFunction on_progress;
  if (show) {
    on_progress = [&](const LoadProgress& progress) {
      show(progress.bytes_read, progress.bytes_total, progress.seconds);
    };
  }
  LoadedModel model(ToModelOptions(flags.model), on_progress,
                    [&](const ModelPlan& plan) { CheckPrompts(flags.input, plan.graph, prompts); });
  LogitsRun run(model, prompts);
  run.Run(flags.hidden_states);
  run.Write(flags.output);
  return kExitSuccess;
}

}  // namespace

void AddLogitsCommand(CLI::App& app, Action& action) {
  const auto flags = std::make_shared<LogitsFlags>();
  CLI::App* command = app.add_subcommand("logits", "Compute the logits of token ids, file to file");
  AddModelFlags(*command, flags->model);
  command
      ->add_option("--input", flags->input,
                   "A .safetensors file with input_ids.N, I64 [tokens]; other tensors are ignored")
      ->required();
  command
      ->add_option("--output", flags->output,
                   "The .safetensors file to write: logits.N, F32 [tokens, vocab]")
      ->required();
  command->add_flag(
      "--hidden-states", flags->hidden_states,
      "Also hidden.L of the first prompt: 0 the embeddings, L after layer L, the last "
      "after the final norm");
  command->callback([flags, &action] { action = [flags] { return WriteLogits(*flags); }; });
}

}  // namespace octavo
