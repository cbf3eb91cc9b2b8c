#include "engine/sequence.h"

#include <algorithm>
#include <utility>

namespace octavo {
namespace {

double Seconds(std::chrono::steady_clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace

Sequence::Sequence(Request request, const Tokenizer& tokenizer, std::vector<int64_t> end_of_text,
                   int64_t vocab_limit)
    : tokenizer_(tokenizer),
      params_(std::move(request.params)),
      on_text_(std::move(request.on_text)),
      end_of_text_(std::move(end_of_text)),
      tokens_(std::move(request.prompt)),
      prompt_tokens_(static_cast<int64_t>(tokens_.size())),
      sampler_(params_, tokens_, vocab_limit),
      decode_(tokenizer, params_.skip_special_tokens,
              std::vector<int64_t>(tokens_.begin(), tokens_.end())),
      stop_(params_.stop, params_.include_stop_str_in_output),
      start_(std::chrono::steady_clock::now()) {
  completion_.prompt_token_ids.assign(tokens_.begin(), tokens_.end());
}

bool Sequence::EndsText(int32_t id) const {
  const auto holds = [id](const std::vector<int64_t>& ids) {
    return std::find(ids.begin(), ids.end(), id) != ids.end();
  };
  return (!params_.ignore_eos && holds(end_of_text_)) || holds(params_.stop_token_ids);
}

void Sequence::Emit(std::string_view text) {
  if (text.empty() || finished_) return;
  completion_.text += text;
  if (on_text_ && !on_text_(text)) Finish(FinishReason::kStop);
}

void Sequence::EmitUntilStop(std::string_view piece) {
  const StopMatcher::Result result = stop_.Push(piece);
  Emit(result.text);
  if (!result.stopped) return;
  completion_.stop_reason = result.stop_string;
  Finish(FinishReason::kStop);
}

void Sequence::Finish(FinishReason reason) {
  if (finished_) return;
  finished_ = true;
  completion_.finish_reason = reason;
  completion_.decode_seconds = Seconds(std::chrono::steady_clock::now() - first_token_);
}

void Sequence::Accept(std::span<const float> logits) {
  const SampledToken sampled = sampler_.Sample(logits);
  if (completion_.token_ids.empty()) {
    first_token_ = std::chrono::steady_clock::now();
    completion_.prefill_seconds = Seconds(first_token_ - start_);
  }
  tokens_.push_back(sampled.id);
  completion_.token_ids.push_back(sampled.id);
  if (params_.logprobs) {
    auto& step = completion_.logprobs.emplace_back();
    for (const auto& [id, logprob] : sampled.logprobs) {
      step.push_back({id, logprob, tokenizer_.Decode(std::vector<int64_t>{id}, false)});
    }
  }
  const bool ends = EndsText(sampled.id);
  if (!ends) EmitUntilStop(decode_.Push(sampled.id));
  const bool full = static_cast<int64_t>(completion_.token_ids.size()) >= params_.max_tokens;
  if (finished_ || (!ends && !full)) return;
  // What was held back (half a character, the beginning of a stop string) is text after all.
  EmitUntilStop(decode_.Flush());
  Emit(stop_.Finish());
  Finish(ends ? FinishReason::kStop : FinishReason::kLength);
}

Completion Sequence::TakeCompletion() { return std::move(completion_); }

}  // namespace octavo
