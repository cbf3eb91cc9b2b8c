// A forward batch as the executor uses it: checked, and spelled out row by row.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backends/backend.h"
#include "backends/cpu/plan.h"
#include "backends/cpu/rope_table.h"

namespace octavo::cpu {

class BatchRows {
 public:
  explicit BatchRows(const Plan& plan);

  // Throws kInvalidArgument where the batch cannot be run: a token outside the vocabulary, rows
  // that do not add up, a block table that is too short or names a block outside the cache.
  void Set(const ForwardBatch& batch, int64_t cache_blocks);

  int64_t tokens() const { return static_cast<int64_t>(batch_.token_ids.size()); }
  int64_t selected() const { return static_cast<int64_t>(batch_.output_rows.size()); }
  int64_t rows(Rows kind) const { return kind == Rows::kTokens ? tokens() : selected(); }
  const ForwardBatch& batch() const { return batch_; }

  int64_t token_id(int64_t row) const { return batch_.token_ids[static_cast<size_t>(row)]; }
  int64_t output_row(int64_t i) const { return batch_.output_rows[static_cast<size_t>(i)]; }
  const RopeTable& rope(int32_t rope) const { return ropes_[static_cast<size_t>(rope)]; }

  // Where the KV cache holds a row.
  struct Place {
    int32_t block;
    int32_t offset;
  };
  Place place(int64_t row) const { return places_[static_cast<size_t>(row)]; }

  // Query rows of one sequence that one task of attention takes.
  struct QueryBlock {
    int32_t sequence;
    int64_t row_begin;  // within the sequence
    int64_t row_end;
  };
  // Those with the most keys first.
  const std::vector<QueryBlock>& query_blocks() const { return query_blocks_; }
  int64_t first_row(int32_t sequence) const { return first_rows_[static_cast<size_t>(sequence)]; }

 private:
  void CheckTokens(const ForwardBatch& batch) const;
  void CheckSequences(const ForwardBatch& batch, int64_t cache_blocks) const;

  int64_t vocab_size_;
  bool has_kv_cache_;
  ForwardBatch batch_;
  std::vector<RopeTable> ropes_;
  std::vector<Place> places_;
  std::vector<QueryBlock> query_blocks_;
  std::vector<int64_t> first_rows_;
};

}  // namespace octavo::cpu
