// Offline inference: load a Hugging Face checkpoint, quantize it on the way, generate text.
//
//   octavo::LLM llm({.model = "path/to/model", .quantization = "int8"});
//   std::cout << llm.Generate("Why is the sky blue?").text;
#pragma once

#include <octavo/error.h>
#include <octavo/sampling_params.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace octavo {

struct LoadStatus {
  uint64_t bytes_read = 0;  // of the checkpoint, so far
  uint64_t bytes_total = 0;
  double seconds = 0;
};

struct LLMOptions {
  std::string model;                  // a directory, or org/name in the Hugging Face cache
  std::string revision = "main";      // of org/name: a branch, tag or commit
  std::string quantization = "none";  // none, int8 (alias tpu_int8)
  bool quantize_lm_head = false;
  // Kept in 16 bits: exact tensor or module names, or "re:" patterns.
  std::vector<std::string> skip_modules;
  std::string backend = "cpu";  // cpu, reference
  std::string dtype = "auto";   // of activations: auto, float32, bfloat16, float16
  int threads = 0;              // 0: one per usable CPU
  int64_t max_model_len = 0;    // tokens of prompt and output; 0: the model's, at most 8192
  int64_t max_num_seqs = 8;     // sequences that run at once
  int64_t max_num_batched_tokens = 512;  // tokens of one forward pass (prefill chunk)
  std::function<void(const LoadStatus&)> on_load_progress;
};

struct ChatMessage {
  std::string role;  // system, user, assistant
  std::string content;
};

enum class FinishReason { kStop, kLength };

struct TokenLogprob {
  int64_t token_id = 0;
  float logprob = 0;  // natural logarithm, of the model's distribution before sampling parameters
  std::string text;
};

struct Completion {
  std::string text;
  std::vector<int64_t> token_ids;
  std::vector<int64_t> prompt_token_ids;
  FinishReason finish_reason = FinishReason::kStop;
  std::string stop_reason;  // the stop string that ended it, "" otherwise
  // Per output token when SamplingParams::logprobs is set: the chosen one first, then the most
  // likely.
  std::vector<std::vector<TokenLogprob>> logprobs;
  double prefill_seconds = 0;  // until the first token
  double decode_seconds = 0;   // from the first token to the last
};

// Called with each piece of text as it becomes final; return false to stop the generation.
using TextCallback = std::function<bool(std::string_view piece)>;

class LLM {
 public:
  // Throws Error: see ErrorCode.
  explicit LLM(const LLMOptions& options);
  ~LLM();
  LLM(LLM&&) noexcept;
  LLM& operator=(LLM&&) noexcept;

  // Completes a text as it stands.
  Completion Generate(std::string_view prompt, const SamplingParams& params = {},
                      const TextCallback& on_text = {});
  // Completes several, batched; results in the order of the prompts.
  std::vector<Completion> Generate(std::span<const std::string> prompts,
                                   const SamplingParams& params = {});
  // Answers a conversation, laid out by the model's chat template. kInvalidArgument when it has
  // none or refuses the messages.
  Completion Chat(std::span<const ChatMessage> messages, const SamplingParams& params = {},
                  const TextCallback& on_text = {});

  // `base` with what the model's generation_config.json asks for.
  SamplingParams default_sampling_params(SamplingParams base = {}) const;
  bool has_chat_template() const;
  int64_t max_model_len() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace octavo
