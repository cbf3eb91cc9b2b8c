#include "apps/cli_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "apps/format.h"
#include "apps/terminal.h"
#include "backends/backend.h"
#include "engine/sampler.h"
#include "quant/scheme.h"

namespace octavo {
namespace {

// A misspelt name is said before a file is looked at. Throws kInvalidArgument listing the names.
void CheckNames(const ModelFlags& flags) {
  MakeScheme(flags.quantization);
  ParseComputeType(flags.dtype);
  CheckBackendName(flags.backend);
}

}  // namespace

void AddModelFlags(CLI::App& command, ModelFlags& flags) {
  command
      .add_option("model", flags.model,
                  "Directory of a Hugging Face checkpoint (config.json and .safetensors files), or "
                  "org/name of one in the Hugging Face cache")
      ->required();
  command.add_option("--revision", flags.revision, "Branch, tag or commit of org/name")
      ->capture_default_str();
  command
      .add_option("-q,--quantization", flags.quantization,
                  fmt::format("What linear weights become while they are read: {}",
                              JoinNames(SchemeNames())))
      ->capture_default_str();
  command.add_flag("--quantize-lm-head", flags.quantize_lm_head, "Quantize the output head too");
  command
      .add_option(
          "--skip-modules", flags.skip_modules,
          "Module or tensor name to keep in 16 bits, or a pattern: re:.*down_proj.* (may be "
          "given several times)")
      ->allow_extra_args(false);
  command
      .add_option("--backend", flags.backend,
                  fmt::format("What runs the model: {}", JoinNames(BackendNames())))
      ->capture_default_str();
  command
      .add_option(
          "--dtype", flags.dtype,
          "What activations are computed in: auto (as accurate as bfloat16), float32 (never "
          "integers), bfloat16, float16")
      ->capture_default_str();
  command.add_option("--threads", flags.threads, "CPU threads; 0: one per usable CPU")
      ->check(CLI::Range(0, 4096))
      ->capture_default_str();
  command.add_flag("--quiet", flags.quiet, "Only warnings and errors on standard error");
}

ModelOptions ToModelOptions(const ModelFlags& flags) {
  CheckNames(flags);
  return {.model = flags.model,
          .revision = flags.revision,
          .load = {.quantization = flags.quantization,
                   .quantize_lm_head = flags.quantize_lm_head,
                   .skip_modules = flags.skip_modules},
          .backend = flags.backend,
          .dtype = flags.dtype,
          .threads = flags.threads};
}

void AddGenerationFlags(CLI::App& command, GenerationFlags& flags) {
  const std::string group =
      "Generation (flags override the model's generation_config.json, which "
      "overrides the default)";
  const auto add = [&](const char* name, auto& value, const char* text) {
    return command.add_option(name, value, text)->group(group);
  };
  add("--max-tokens", flags.max_tokens, "New tokens at most (default 256)");
  add("--temperature", flags.temperature,
      "0: greedy, the most likely token each time (default 0, so that a run can be repeated)");
  add("--top-k", flags.top_k, "Sample from the k most likely tokens; 0: all (default 0)");
  add("--top-p", flags.top_p,
      "Sample from the likeliest tokens of this total probability (default 1)");
  add("--min-p", flags.min_p, "Drop tokens below this share of the likeliest one (default 0)");
  add("--repetition-penalty", flags.repetition_penalty,
      "Divides the logits of tokens in prompt and output (default 1)");
  add("--presence-penalty", flags.presence_penalty,
      "Subtracted from the logits of tokens in the output (default 0)");
  add("--frequency-penalty", flags.frequency_penalty,
      "Subtracted once per occurrence in the output (default 0)");
  add("--seed", flags.seed, "Same seed, same text");
  add("--stop", flags.stop, "End before this string (may be given several times)")
      ->allow_extra_args(false);
  command.add_flag("--ignore-eos", flags.ignore_eos, "Go on past the end-of-text token")
      ->group(group);
  add("--max-model-len", flags.max_model_len,
      "Tokens of prompt and output together; 0: the model's context, at most 8192")
      ->capture_default_str();
}

LLMOptions ToLLMOptions(const ModelFlags& model, const GenerationFlags& generation) {
  CheckNames(model);
  LLMOptions options;
  options.model = model.model;
  options.revision = model.revision;
  options.quantization = model.quantization;
  options.quantize_lm_head = model.quantize_lm_head;
  options.skip_modules = model.skip_modules;
  options.backend = model.backend;
  options.dtype = model.dtype;
  options.threads = model.threads;
  options.max_model_len = generation.max_model_len;
  options.max_num_seqs = 1;
  if (const auto show = ProgressLine(model.quiet)) {
    options.on_load_progress = [show](const LoadStatus& status) {
      show(status.bytes_read, status.bytes_total, status.seconds);
    };
  }
  return options;
}

SamplingParams ProgramSamplingDefaults() {
  SamplingParams params;
  params.temperature = 0.0f;
  return params;
}

SamplingParams ApplyGenerationFlags(const GenerationFlags& flags, SamplingParams defaults) {
  const auto override_with = [](auto& value, const auto& flag) {
    if (flag) value = *flag;
  };
  override_with(defaults.max_tokens, flags.max_tokens);
  override_with(defaults.temperature, flags.temperature);
  override_with(defaults.top_k, flags.top_k);
  override_with(defaults.top_p, flags.top_p);
  override_with(defaults.min_p, flags.min_p);
  override_with(defaults.repetition_penalty, flags.repetition_penalty);
  override_with(defaults.presence_penalty, flags.presence_penalty);
  override_with(defaults.frequency_penalty, flags.frequency_penalty);
  if (flags.seed) defaults.seed = flags.seed;
  if (!flags.stop.empty()) defaults.stop = flags.stop;
  defaults.ignore_eos = flags.ignore_eos;
  ValidateSamplingParams(defaults);
  return defaults;
}

}  // namespace octavo
