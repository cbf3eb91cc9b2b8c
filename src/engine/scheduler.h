// Chooses the rows of the next forward batch: a pure function of what is running.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace octavo {

// How far a running sequence is.
struct SequenceProgress {
  int64_t tokens = 0;    // known: prompt and output so far
  int64_t computed = 0;  // in the KV cache
};

struct ScheduledRows {
  size_t sequence = 0;  // index into what was given
  int64_t rows = 0;     // tokens to compute, from `computed` on
};

// Sequences in decode (one token left to compute) go first, so that a long prompt does not hold
// them up; then prompts, oldest first, in chunks that fill the budget of `max_tokens` rows.
// Ascending by sequence.
std::vector<ScheduledRows> ScheduleStep(std::span<const SequenceProgress> running,
                                        int64_t max_tokens);

}  // namespace octavo
