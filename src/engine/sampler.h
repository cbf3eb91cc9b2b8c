// Chooses the next token of one sequence from its logits. The order is vLLM's: penalties,
// temperature, min-p, top-k, top-p, draw. Deterministic: the draws depend on the seed and the step
// alone.
#pragma once

#include <octavo/sampling_params.h>

#include <cstdint>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

namespace octavo {

// Throws kInvalidArgument naming the parameter, its range and what was given.
void ValidateSamplingParams(const SamplingParams& params);

struct SampledToken {
  int32_t id = 0;
  // With SamplingParams::logprobs: the chosen token, then the most likely ones, of the distribution
  // before penalties and temperature.
  std::vector<std::pair<int32_t, float>> logprobs;
};

class Sampler {
 public:
  // Ids from `vocab_limit` on (padding rows of the head without a token) are never chosen. Without
  // a seed one is drawn from the operating system.
  Sampler(const SamplingParams& params, std::span<const int32_t> prompt, int64_t vocab_limit);

  // Throws kDataLoss when the logits are not finite.
  SampledToken Sample(std::span<const float> logits);

 private:
  void ApplyPenalties(std::vector<float>& logits) const;
  struct Weighted {
    int32_t id;
    double weight;
  };
  // The tokens that min-p, top-k and top-p leave, with their probabilities up to a common factor.
  std::vector<Weighted> Candidates(std::span<const float> logits) const;
  int32_t Draw(std::span<const float> logits);
  double NextUniform();

  SamplingParams params_;
  int64_t vocab_limit_;
  uint64_t state_;
  std::unordered_map<int32_t, int64_t> output_counts_;
  std::vector<int32_t> prompt_tokens_;  // each once; kept only for the repetition penalty
};

}  // namespace octavo
