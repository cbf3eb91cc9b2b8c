#include "engine/sequence_runner.h"

#include <fmt/format.h>
#include <octavo/error.h>

#include <algorithm>
#include <numeric>

namespace octavo {

SequenceRunner::SequenceRunner(LoadedModel& model, int64_t max_tokens)
    : model_(model), max_tokens_(std::max<int64_t>(max_tokens, 1)) {
  const int64_t blocks = (max_tokens_ + kKvBlockTokens - 1) / kKvBlockTokens;
  model_.executable().AllocateKvCache(blocks);
  block_table_.resize(static_cast<size_t>(blocks));
  std::iota(block_table_.begin(), block_table_.end(), 0);
}

std::span<const float> SequenceRunner::Append(std::span<const int32_t> tokens, int64_t wanted,
                                              int64_t total_length) {
  const auto rows = static_cast<int64_t>(tokens.size());
  if (length_ + rows > max_tokens_) {
    throw Error(
        ErrorCode::kResourceExhausted,
        fmt::format("sequence of {} tokens, there is room for {}", length_ + rows, max_tokens_));
  }
  for (const int32_t id : tokens) {
    if (id < 0 || id >= model_.graph().vocab_size()) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("token id {} is outside the vocabulary of {} tokens", id,
                              model_.graph().vocab_size()));
    }
  }
  const SequenceRows sequence{.rows = rows,
                              .first_position = length_,
                              .rope_length = std::max(total_length, length_ + rows),
                              .block_table = block_table_};
  std::vector<int32_t> output_rows(static_cast<size_t>(std::min(wanted, rows)));
  std::iota(output_rows.begin(), output_rows.end(),
            static_cast<int32_t>(rows - static_cast<int64_t>(output_rows.size())));
  const std::span<const float> logits =
      model_.executable().Run({.token_ids = tokens,
                               .sequences = {&sequence, 1},
                               .output_rows = output_rows,
                               .on_hidden_state = on_hidden_state});
  length_ += rows;
  return logits;
}

void SequenceRunner::RunPrompt(
    std::span<const int32_t> tokens,
    const std::function<void(int64_t, std::span<const float>)>& on_logits) {
  Reset();
  const auto total = static_cast<int64_t>(tokens.size());
  const int64_t chunk = model_.RowsWithinWorkspace(kPromptChunk, kPromptChunk);
  for (int64_t begin = 0; begin < total; begin += chunk) {
    const int64_t rows = std::min(chunk, total - begin);
    on_logits(begin, Append(tokens.subspan(static_cast<size_t>(begin), static_cast<size_t>(rows)),
                            rows, total));
  }
}

}  // namespace octavo
