// `octavo inspect`: what a checkpoint holds and what loading it would do, from headers alone.
#include <fmt/format.h>
#include <octavo/error.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "apps/cli_options.h"
#include "apps/commands.h"
#include "apps/exit_status.h"
#include "apps/format.h"
#include "apps/terminal.h"
#include "checkpoint/checkpoint.h"
#include "engine/loaded_model.h"
#include "models/registry.h"

namespace octavo {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kKvTokens = 1024;        // that the KV cache is given for
constexpr int64_t kWorkspaceTokens = 512;  // of one forward batch

struct InspectFlags {
  ModelFlags model;
  bool plan = false;
  bool json = false;
};

struct Count {
  int64_t tensors = 0;
  uint64_t parameters = 0;
  uint64_t bytes = 0;
};

struct Summary {
  std::string directory;
  std::string architecture;
  std::string unsupported;  // why the architecture cannot be run, "" when it can
  Count total;
  std::map<std::string, Count> by_dtype;  // "BF16"
  std::map<std::string, uint64_t> files;  // name -> bytes
  // Config fields that are there: layers, hidden size, ...
  std::vector<std::pair<std::string, int64_t>> fields;
};

void Add(Count& count, const TensorEntry& entry) {
  count.tensors += 1;
  count.parameters += static_cast<uint64_t>(ElementCount(entry.shape).value_or(0));
  count.bytes += entry.bytes;
}

std::string ArchitectureOf(const HfConfig& config) {
  const std::vector<std::string> names = config.StringList("architectures");
  return names.empty() ? config.String("model_type", "unknown") : names.front();
}

Summary Summarize(const Checkpoint& checkpoint) {
  Summary summary;
  const HfConfig& config = checkpoint.config();
  summary.directory = checkpoint.directory();
  summary.architecture = ArchitectureOf(config);
  try {
    BuildModel(config);
  } catch (const Error& error) {
    summary.unsupported = error.what();
  }
  for (const CheckpointTensor& tensor : checkpoint.tensors()) {
    Add(summary.total, *tensor.entry);
    Add(summary.by_dtype[SafetensorsName(tensor.entry->dtype)], *tensor.entry);
    const std::string name = std::filesystem::path(tensor.file->path()).filename().string();
    summary.files[name] = tensor.file->file().size();
  }
  for (const char* field :
       {"num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads",
        "num_key_value_heads", "vocab_size", "max_position_embeddings"}) {
    try {
      if (config.Has(field)) summary.fields.emplace_back(field, config.Int(field));
    } catch (const Error&) {
      // Some architectures give a list, one number per layer; it is not shown.
    }
  }
  return summary;
}

struct Memory {
  std::string backend;
  uint64_t weights = 0;
  uint64_t kv_cache = 0;   // for kKvTokens
  uint64_t workspace = 0;  // for a batch of kWorkspaceTokens
};

Memory MemoryOf(const ModelFlags& flags, const ModelPlan& model) {
  ThreadPool pool(flags.threads);
  const std::unique_ptr<Executable> executable = CompileGraph(
      flags.backend, model.graph, {.compute = ParseComputeType(flags.dtype), .pool = &pool});
  return {.backend = flags.backend,
          .weights = model.plan.bytes_kept,
          .kv_cache = executable->KvBytesPerBlock() * (kKvTokens / kKvBlockTokens),
          .workspace = executable->WorkspaceBytes(kWorkspaceTokens, 1)};
}

std::string Text(const Summary& summary) {
  std::string text;
  const auto line = [&](const std::string& name, const std::string& value) {
    text += fmt::format("{:<24} {}\n", name, value);
  };
  line("directory", summary.directory);
  line("architecture", summary.architecture);
  if (!summary.unsupported.empty()) line("", "cannot be run: " + summary.unsupported);
  for (const auto& [name, value] : summary.fields) line(name, std::to_string(value));
  line("parameters",
       fmt::format("{} in {} tensors, {}", summary.total.parameters, summary.total.tensors,
                   FormatSize(static_cast<double>(summary.total.bytes))));
  for (const auto& [dtype, count] : summary.by_dtype) {
    line("stored as " + dtype, fmt::format("{} tensors, {}", count.tensors,
                                           FormatSize(static_cast<double>(count.bytes))));
  }
  for (const auto& [name, bytes] : summary.files) {
    line("file", fmt::format("{}, {}", name, FormatSize(static_cast<double>(bytes))));
  }
  return text;
}

std::string Text(const Memory& memory) {
  const auto line = [](const std::string& name, uint64_t bytes) {
    return fmt::format("  {:<40} {:>10}\n", name, FormatSize(static_cast<double>(bytes)));
  };
  return fmt::format("memory on backend {}:\n", memory.backend) + line("weights", memory.weights) +
         line(fmt::format("KV cache for {} tokens", kKvTokens), memory.kv_cache) +
         line(fmt::format("workspace for batches of {} tokens", kWorkspaceTokens),
              memory.workspace);
}

Json ToJson(const Summary& summary) {
  Json json = {{"directory", summary.directory},
               {"architecture", summary.architecture},
               {"supported", summary.unsupported.empty()}};
  for (const auto& [name, value] : summary.fields) json[name] = value;
  json["parameters"] = summary.total.parameters;
  json["tensors"] = summary.total.tensors;
  json["tensor_bytes"] = summary.total.bytes;
  for (const auto& [dtype, count] : summary.by_dtype) {
    json["stored"][dtype] = {{"tensors", count.tensors}, {"bytes", count.bytes}};
  }
  for (const auto& [name, bytes] : summary.files) json["files"][name] = bytes;
  return json;
}

Json ToJson(const ModelPlan& model, const Memory& memory) {
  Json weights = Json::array();
  for (const PlannedWeight& weight : model.plan.weights) {
    weights.push_back({{"tensor", weight.source.entry->name},
                       {"shape", weight.source.entry->shape},
                       {"stored", Name(weight.source.entry->dtype)},
                       {"becomes", ToString(weight.format)},
                       {"bytes_read", weight.bytes_read},
                       {"bytes_kept", weight.bytes_kept},
                       {"reason", weight.reason}});
  }
  return {{"scheme", model.plan.scheme},
          {"bytes_read", model.plan.bytes_read},
          {"bytes_kept", model.plan.bytes_kept},
          {"weights", weights},
          {"warnings", model.plan.warnings},
          {"memory",
           {{"backend", memory.backend},
            {"weight_bytes", memory.weights},
            {"kv_bytes_per_1024_tokens", memory.kv_cache},
            {"workspace_bytes", memory.workspace}}}};
}

int Inspect(const InspectFlags& flags) {
  ShowLibraryMessages(flags.model.quiet);
  const ModelOptions options = ToModelOptions(flags.model);
  std::optional<ModelPlan> model;
  if (flags.plan) model.emplace(PlanModel(options));
  const Summary summary =
      model ? Summarize(model->checkpoint)
            : Summarize(Checkpoint::Open(ResolveModelDirectory(options.model, options.revision)));
  std::optional<Memory> memory;
  if (model) memory = MemoryOf(flags.model, *model);
  if (flags.json) {
    Json json = ToJson(summary);
    if (model) json["plan"] = ToJson(*model, *memory);
    WriteOutput(json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
    return kExitSuccess;
  }
  WriteOutput(Text(summary));
  if (model) WriteOutput("\n" + FormatPlan(model->plan, model->graph) + "\n" + Text(*memory));
  return kExitSuccess;
}

}  // namespace

void AddInspectCommand(CLI::App& app, Action& action) {
  const auto flags = std::make_shared<InspectFlags>();
  CLI::App* command =
      app.add_subcommand("inspect", "Show what a checkpoint holds and what loading it would do");
  AddModelFlags(*command, flags->model);
  command->add_flag("--plan", flags->plan,
                    "What becomes of each tensor, and the memory it takes; reads headers only");
  command->add_flag("--json", flags->json, "Print JSON");
  command->callback([flags, &action] { action = [flags] { return Inspect(*flags); }; });
}

}  // namespace octavo
