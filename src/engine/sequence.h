// One request on its way: its tokens, its KV blocks, how far it is, and the text that its tokens
// make.
#pragma once

#include <octavo/llm.h>

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/sampler.h"
#include "engine/scheduler.h"
#include "text/decode_stream.h"
#include "text/stop_matcher.h"
#include "text/tokenizer.h"

namespace octavo {

struct Request {
  std::vector<int32_t> prompt;  // at least one token
  SamplingParams params;        // max_tokens already within the context
  TextCallback on_text;         // may be empty
};

class Sequence {
 public:
  // `end_of_text` are the ids that end a text (unless ignore_eos); ids from `vocab_limit` on are
  // never chosen.
  Sequence(Request request, const Tokenizer& tokenizer, std::vector<int64_t> end_of_text,
           int64_t vocab_limit);

  const std::vector<int32_t>& tokens() const { return tokens_; }  // prompt and output
  int64_t prompt_tokens() const { return prompt_tokens_; }
  SequenceProgress progress() const {
    return {.tokens = static_cast<int64_t>(tokens_.size()), .computed = computed_};
  }
  int64_t max_total_tokens() const { return prompt_tokens_ + params_.max_tokens; }
  std::vector<int32_t>& block_table() { return block_table_; }

  // `rows` more tokens are in the KV cache.
  void AddComputed(int64_t rows) { computed_ += rows; }
  // Takes the logits behind the last token: chooses the next one, extends the text, and ends the
  // sequence where the parameters say so.
  void Accept(std::span<const float> logits);

  bool finished() const { return finished_; }
  // Once finished.
  Completion TakeCompletion();

 private:
  bool EndsText(int32_t id) const;
  void Emit(std::string_view text);
  void EmitUntilStop(std::string_view piece);
  void Finish(FinishReason reason);

  const Tokenizer& tokenizer_;
  SamplingParams params_;
  TextCallback on_text_;
  std::vector<int64_t> end_of_text_;
  std::vector<int32_t> tokens_;
  int64_t prompt_tokens_;
  int64_t computed_ = 0;
  std::vector<int32_t> block_table_;
  Sampler sampler_;
  DecodeStream decode_;
  StopMatcher stop_;
  bool finished_ = false;
  Completion completion_;
  std::chrono::steady_clock::time_point start_;
  std::chrono::steady_clock::time_point first_token_;
};

}  // namespace octavo
