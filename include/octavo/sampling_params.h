// How tokens are chosen and when a generation ends. Names and meanings are vLLM's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace octavo {

struct SamplingParams {
  int64_t max_tokens = 256;         // new tokens at most, >= 1
  float temperature = 1.0f;         // 0: greedy
  int64_t top_k = 0;                // keep the k most likely tokens; 0 or -1: all
  float top_p = 1.0f;               // keep the smallest set with this probability, (0, 1]
  float min_p = 0.0f;               // drop tokens below this share of the most likely one, [0, 1]
  float repetition_penalty = 1.0f;  // > 0; over prompt and output (Keskar et al. 2019)
  float presence_penalty = 0.0f;    // [-2, 2]; once per token that occurred in the output
  float frequency_penalty = 0.0f;   // [-2, 2]; per occurrence in the output
  std::optional<uint64_t> seed;     // same seed, same text, whatever else runs beside it
  std::vector<std::string> stop;    // the text ends before the first of these
  bool include_stop_str_in_output = false;
  std::vector<int64_t> stop_token_ids;
  bool ignore_eos = false;
  bool skip_special_tokens = true;
  std::optional<int64_t>
      logprobs;  // report this many of the most likely tokens at each step, 0..20
};

}  // namespace octavo
