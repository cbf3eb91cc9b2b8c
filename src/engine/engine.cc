#include "engine/engine.h"

#include <fmt/format.h>
#include <octavo/error.h>

#include <algorithm>
#include <utility>

namespace octavo {
namespace {

constexpr uint64_t kKvCacheBytes = uint64_t{1} << 30;

int64_t BlocksFor(int64_t tokens) { return (tokens + kKvBlockTokens - 1) / kKvBlockTokens; }

int64_t KvBlocks(const Executable& executable, const EngineOptions& options) {
  const int64_t per_sequence = BlocksFor(options.max_model_len);
  const auto affordable =
      static_cast<int64_t>(kKvCacheBytes / std::max<uint64_t>(executable.KvBytesPerBlock(), 1));
  return std::max(per_sequence, std::min(per_sequence * options.max_num_seqs, affordable));
}

}  // namespace

Engine::Engine(LoadedModel& model, const Tokenizer& tokenizer, std::vector<int64_t> end_of_text,
               const EngineOptions& options)
    : model_(model),
      tokenizer_(tokenizer),
      end_of_text_(std::move(end_of_text)),
      options_{.max_model_len = options.max_model_len,
               .max_num_seqs = options.max_num_seqs,
               // Every running sequence gets at least its decode row in each step.
               .max_num_batched_tokens = std::max(
                   options.max_num_seqs, model.RowsWithinWorkspace(options.max_num_batched_tokens,
                                                                   options.max_num_seqs))},
      // The head may have more rows than there are tokens; those rows are padding.
      vocab_limit_(std::min(model.graph().vocab_size(), tokenizer.id_limit())),
      blocks_(KvBlocks(model.executable(), options)) {
  model_.executable().AllocateKvCache(blocks_.total());
}

int64_t Engine::Add(Request request) {
  ValidateSamplingParams(request.params);
  const auto prompt = static_cast<int64_t>(request.prompt.size());
  if (prompt == 0) throw Error(ErrorCode::kInvalidArgument, "the prompt is empty (no tokens)");
  if (prompt >= options_.max_model_len) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("the prompt has {} tokens; with a context of {} tokens (max_model_len) "
                            "at most {} are possible",
                            prompt, options_.max_model_len, options_.max_model_len - 1));
  }
  for (const int32_t id : request.prompt) {
    if (id < 0 || id >= model_.graph().vocab_size()) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("the prompt holds token id {}, outside the model's vocabulary of {}",
                              id, model_.graph().vocab_size()));
    }
  }
  request.params.max_tokens = std::min(request.params.max_tokens, options_.max_model_len - prompt);
  auto sequence =
      std::make_unique<Sequence>(std::move(request), tokenizer_, end_of_text_, vocab_limit_);
  waiting_.push_back({next_request_, std::move(sequence)});
  return next_request_++;
}

void Engine::Clear() {
  waiting_.clear();
  for (Entry& entry : running_) blocks_.Free(entry.sequence->block_table());
  running_.clear();
}

// First come, first served: a sequence starts when there are blocks for all it may become, so that
// none has to be pushed out again.
void Engine::Admit() {
  while (!waiting_.empty() && static_cast<int64_t>(running_.size()) < options_.max_num_seqs) {
    Sequence& next = *waiting_.front().sequence;
    if (!blocks_.Allocate(BlocksFor(next.max_total_tokens()), next.block_table())) return;
    running_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
}

std::span<const float> Engine::RunBatch(const std::vector<ScheduledRows>& step,
                                        std::vector<Sequence*>& sampled) {
  std::vector<int32_t> token_ids;
  std::vector<SequenceRows> sequences;
  std::vector<int32_t> output_rows;
  for (const ScheduledRows& scheduled : step) {
    Sequence& sequence = *running_[scheduled.sequence].sequence;
    const SequenceProgress progress = sequence.progress();
    const auto first = sequence.tokens().begin() + progress.computed;
    token_ids.insert(token_ids.end(), first, first + scheduled.rows);
    sequences.push_back(
        {.rows = scheduled.rows,
         .first_position = progress.computed,
         .rope_length = std::max(progress.computed + scheduled.rows, sequence.prompt_tokens()),
         .block_table = sequence.block_table()});
    if (progress.computed + scheduled.rows == progress.tokens) {
      output_rows.push_back(static_cast<int32_t>(token_ids.size()) - 1);
      sampled.push_back(&sequence);
    }
  }
  const std::span<const float> logits = model_.executable().Run(
      {.token_ids = token_ids, .sequences = sequences, .output_rows = output_rows});
  for (const ScheduledRows& scheduled : step) {
    running_[scheduled.sequence].sequence->AddComputed(scheduled.rows);
  }
  return logits;
}

std::vector<Engine::Finished> Engine::Step() {
  Admit();
  std::vector<SequenceProgress> progress;
  progress.reserve(running_.size());
  for (const Entry& entry : running_) progress.push_back(entry.sequence->progress());
  std::vector<Sequence*> sampled;
  const std::span<const float> logits =
      RunBatch(ScheduleStep(progress, options_.max_num_batched_tokens), sampled);
  const auto vocab = static_cast<size_t>(model_.graph().vocab_size());
  for (size_t i = 0; i < sampled.size(); ++i) sampled[i]->Accept(logits.subspan(i * vocab, vocab));

  std::vector<Finished> finished;
  std::erase_if(running_, [&](Entry& entry) {
    if (!entry.sequence->finished()) return false;
    blocks_.Free(entry.sequence->block_table());
    finished.push_back({entry.request, entry.sequence->TakeCompletion()});
    return true;
  });
  return finished;
}

}  // namespace octavo
