// Continuous batching over one loaded model: requests wait, run and end independently; each step is
// one forward batch that mixes prompt chunks and decode rows of many sequences. One thread drives
// it.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "engine/block_pool.h"
#include "engine/loaded_model.h"
#include "engine/sequence.h"

namespace octavo {

struct EngineOptions {
  int64_t max_model_len = 0;  // tokens of prompt and output, >= 2
  int64_t max_num_seqs = 8;   // sequences that run at once
  int64_t max_num_batched_tokens =
      512;  // rows of one forward batch; fewer where their memory is large
};

class Engine {
 public:
  // Makes room for the KV cache: max_num_seqs sequences of max_model_len tokens, or as many as fit
  // into 1 GiB (one at least).
  Engine(LoadedModel& model, const Tokenizer& tokenizer, std::vector<int64_t> end_of_text,
         const EngineOptions& options);

  // Queues a request and returns its number. Throws kInvalidArgument for an empty prompt, one that
  // leaves no room for output, ids outside the vocabulary, or parameters out of range.
  int64_t Add(Request request);
  bool HasWork() const { return !waiting_.empty() || !running_.empty(); }
  struct Finished {
    int64_t request;
    Completion completion;
  };
  // One forward batch. Returns the sequences that ended in it.
  std::vector<Finished> Step();
  // Drops every request.
  void Clear();

 private:
  struct Entry {
    int64_t request;
    std::unique_ptr<Sequence> sequence;
  };
  void Admit();
  std::span<const float> RunBatch(const std::vector<ScheduledRows>& step,
                                  std::vector<Sequence*>& sampled);

  LoadedModel& model_;
  const Tokenizer& tokenizer_;
  std::vector<int64_t> end_of_text_;
  EngineOptions options_;
  int64_t vocab_limit_;
  BlockPool blocks_;
  int64_t next_request_ = 0;
  std::deque<Entry> waiting_;
  std::vector<Entry> running_;
};

}  // namespace octavo
