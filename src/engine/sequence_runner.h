// Runs one token sequence at a time through a model, without text, scheduling or sampling: what
// `octavo logits` and `octavo bench` need.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "backends/backend.h"
#include "engine/loaded_model.h"

namespace octavo {

inline constexpr int64_t kPromptChunk = 512;  // tokens of one forward batch at most

class SequenceRunner {
 public:
  // Makes room in the model's KV cache for sequences of up to `max_tokens` tokens.
  SequenceRunner(LoadedModel& model, int64_t max_tokens);

  // Forgets the tokens so far.
  void Reset() { length_ = 0; }
  int64_t length() const { return length_; }

  // Appends tokens and returns the logits of the last `wanted` of them, [wanted, vocab], valid
  // until the next call. `total_length` is the length of the whole prompt while it is fed in pieces
  // (for length-dependent rope); 0: what there is after this call. Throws kInvalidArgument for ids
  // outside the vocabulary and kResourceExhausted past max_tokens.
  std::span<const float> Append(std::span<const int32_t> tokens, int64_t wanted,
                                int64_t total_length = 0);

  // Resets, feeds `tokens` in chunks whose working memory is bounded, and calls
  // on_logits(first_row, logits [rows, vocab]) for each.
  void RunPrompt(std::span<const int32_t> tokens,
                 const std::function<void(int64_t, std::span<const float>)>& on_logits);

  // Called with (L, values [rows, width], rows, width) for each hidden state of each Append, while
  // set.
  std::function<void(int64_t, const float*, int64_t, int64_t)> on_hidden_state;

 private:
  LoadedModel& model_;
  int64_t max_tokens_;
  int64_t length_ = 0;
  std::vector<int32_t> block_table_;
};

}  // namespace octavo
