// The flags that several commands have, named as vLLM names them where it has the same thing.
#pragma once

#include <octavo/llm.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/loaded_model.h"

namespace CLI {
class App;
}

namespace octavo {

// Which model, and how it is loaded and run.
struct ModelFlags {
  std::string model;
  std::string revision = "main";
  std::string quantization = "none";
  bool quantize_lm_head = false;
  std::vector<std::string> skip_modules;
  std::string backend = "cpu";
  std::string dtype = "auto";
  int threads = 0;
  bool quiet = false;
};
void AddModelFlags(CLI::App& command, ModelFlags& flags);
ModelOptions ToModelOptions(const ModelFlags& flags);

// How a text is generated: what was given overrides the model's generation_config.json, which
// overrides the program's own defaults (greedy).
struct GenerationFlags {
  std::optional<int64_t> max_tokens;
  std::optional<float> temperature;
  std::optional<int64_t> top_k;
  std::optional<float> top_p;
  std::optional<float> min_p;
  std::optional<float> repetition_penalty;
  std::optional<float> presence_penalty;
  std::optional<float> frequency_penalty;
  std::optional<uint64_t> seed;
  std::vector<std::string> stop;
  bool ignore_eos = false;
  int64_t max_model_len = 0;
};
void AddGenerationFlags(CLI::App& command, GenerationFlags& flags);
LLMOptions ToLLMOptions(const ModelFlags& model, const GenerationFlags& generation);
// `defaults` with the flags that were given; throws as ValidateSamplingParams does.
SamplingParams ApplyGenerationFlags(const GenerationFlags& flags, SamplingParams defaults);
// The program's own defaults: greedy, so that a run can be repeated.
SamplingParams ProgramSamplingDefaults();

}  // namespace octavo
