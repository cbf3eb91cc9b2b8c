#include "backends/cpu/batch_rows.h"

#include <fmt/format.h>
#include <octavo/error.h>

#include <algorithm>

namespace octavo::cpu {
namespace {

// Query rows of a task: enough that keys and values are used many times while they lie in the
// cache, few enough that the threads share a prompt evenly.
constexpr int64_t kQueryRows = 48;

[[noreturn]] void Refuse(const std::string& problem) {
  throw Error(ErrorCode::kInvalidArgument, "forward batch: " + problem);
}

}  // namespace

BatchRows::BatchRows(const Plan& plan)
    : vocab_size_(plan.vocab_size), has_kv_cache_(!plan.kv_layers.empty()) {
  for (const RopeParameters& rope : plan.ropes) ropes_.emplace_back(rope);
}

void BatchRows::CheckTokens(const ForwardBatch& batch) const {
  for (size_t row = 0; row < batch.token_ids.size(); ++row) {
    const int64_t id = batch.token_ids[row];
    if (id < 0 || id >= vocab_size_) {
      Refuse(fmt::format("token id {} at row {}: expected 0 to {}", id, row, vocab_size_ - 1));
    }
  }
  int64_t previous = -1;
  for (const int64_t row : batch.output_rows) {
    if (row <= previous || row >= static_cast<int64_t>(batch.token_ids.size())) {
      Refuse(fmt::format("output row {} after {}: expected ascending rows below {}", row, previous,
                         batch.token_ids.size()));
    }
    previous = row;
  }
}

void BatchRows::CheckSequences(const ForwardBatch& batch, int64_t cache_blocks) const {
  int64_t rows = 0;
  for (size_t i = 0; i < batch.sequences.size(); ++i) {
    const SequenceRows& sequence = batch.sequences[i];
    if (sequence.rows < 1 || sequence.first_position < 0) {
      Refuse(fmt::format("sequence {}: {} rows from position {}", i, sequence.rows,
                         sequence.first_position));
    }
    rows += sequence.rows;
    if (!has_kv_cache_) continue;
    const int64_t end = sequence.first_position + sequence.rows;
    const size_t needed = static_cast<size_t>((end + kKvBlockTokens - 1) / kKvBlockTokens);
    if (sequence.block_table.size() < needed) {
      Refuse(fmt::format("sequence {}: {} tokens need {} KV blocks, its table has {}", i, end,
                         needed, sequence.block_table.size()));
    }
    for (const int32_t block : sequence.block_table.first(needed)) {
      if (block < 0 || block >= cache_blocks) {
        Refuse(fmt::format("sequence {}: KV block {} of a cache of {}", i, block, cache_blocks));
      }
    }
  }
  if (rows != static_cast<int64_t>(batch.token_ids.size())) {
    Refuse(fmt::format("the sequences have {} rows, but there are {} tokens", rows,
                       batch.token_ids.size()));
  }
}

void BatchRows::Set(const ForwardBatch& batch, int64_t cache_blocks) {
  CheckTokens(batch);
  CheckSequences(batch, cache_blocks);
  batch_ = batch;
  places_.clear();
  query_blocks_.clear();
  first_rows_.clear();
  for (RopeTable& rope : ropes_) rope.Begin(tokens());
  int64_t row = 0;
  for (size_t i = 0; i < batch.sequences.size(); ++i) {
    const SequenceRows& sequence = batch.sequences[i];
    first_rows_.push_back(row);
    row += sequence.rows;
    for (RopeTable& rope : ropes_) {
      rope.AddRows(sequence.rows, sequence.first_position, sequence.rope_length);
    }
    if (!has_kv_cache_) continue;
    for (int64_t j = 0; j < sequence.rows; ++j) {
      const int64_t position = sequence.first_position + j;
      places_.push_back({sequence.block_table[static_cast<size_t>(position / kKvBlockTokens)],
                         static_cast<int32_t>(position % kKvBlockTokens)});
    }
    for (int64_t j = 0; j < sequence.rows; j += kQueryRows) {
      query_blocks_.push_back(
          {static_cast<int32_t>(i), j, std::min(j + kQueryRows, sequence.rows)});
    }
  }
  const auto keys = [&](const QueryBlock& block) {
    return batch.sequences[static_cast<size_t>(block.sequence)].first_position + block.row_end;
  };
  std::stable_sort(query_blocks_.begin(), query_blocks_.end(),
                   [&](const QueryBlock& a, const QueryBlock& b) { return keys(a) > keys(b); });
}

}  // namespace octavo::cpu
