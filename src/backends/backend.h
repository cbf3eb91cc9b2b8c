// What every backend offers: it compiles a graph into an executable that takes weights panel by
// panel and then runs forward batches over its own paged KV cache.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"
#include "tensor/weight_format.h"
#include "tensor/weight_panel.h"

namespace octavo {

class ThreadPool;

inline constexpr int64_t kKvBlockTokens = 32;  // tokens per KV block

// What activations are computed in (--dtype). `auto` is kBFloat16 on CPUs.
enum class ComputeType : uint8_t { kFloat32, kBFloat16, kFloat16 };

// Where loading puts weights.
class WeightSink {
 public:
  virtual ~WeightSink() = default;
  // Announces weight `id` and its format, before its panels; one thread.
  virtual void BeginWeight(WeightId id, const WeightFormat& format) = 0;
  // Rows of a weight; any thread, disjoint rows at once. row_begin is a multiple of 16, and so is
  // rows unless the panel ends the weight. A vector is one row. The panel's memory is the caller's
  // again on return.
  virtual void PutPanel(WeightId id, const WeightPanel& panel) = 0;
  // After the last panel: checks that every row of every weight has arrived (kInternal otherwise).
  virtual void EndWeights() = 0;
};

// The rows of one sequence in a batch. Rows of a batch belong to sequences in order, without gaps.
struct SequenceRows {
  int64_t rows = 0;            // tokens of this step
  int64_t first_position = 0;  // position of the first; positions before it are in the KV cache
  int64_t rope_length =
      0;  // tokens the sequence has after this step, or its whole prompt while that is
          // longer: what length-dependent rope (dynamic, longrope) looks at
  std::span<const int32_t> block_table;  // KV blocks of positions [0, first_position + rows)
};

struct ForwardBatch {
  std::span<const int32_t> token_ids;  // [tokens], each within the vocabulary
  std::span<const SequenceRows> sequences;
  std::span<const int32_t> output_rows;  // ascending rows whose logits are wanted
  // When set, called with (L, values [rows, width], rows, width) for each hidden state.
  std::function<void(int64_t, const float*, int64_t, int64_t)> on_hidden_state;
};

struct ExecutableInfo {
  uint64_t weight_bytes = 0;         // memory that weights take, padding included
  uint64_t streamed_bytes = 0;       // weight bytes that one decode step reads
  std::string isa;                   // "avx512_vnni", "" where it has no meaning
  std::vector<std::string> kernels;  // names of the linear kernels in use, each once
};

class Executable : public WeightSink {
 public:
  // Makes room for a KV cache of `blocks` blocks. Memory becomes resident as it is used.
  virtual void AllocateKvCache(int64_t blocks) = 0;
  virtual uint64_t KvBytesPerBlock() const = 0;
  // Bytes of working memory that batches of up to `tokens` rows and `selected` output rows need.
  virtual uint64_t WorkspaceBytes(int64_t tokens, int64_t selected) const = 0;
  // Runs a batch; logits [output_rows, vocab], valid until the next call. The result for a sequence
  // does not depend on the others in the batch.
  virtual std::span<const float> Run(const ForwardBatch& batch) = 0;
  virtual ExecutableInfo Info() const = 0;
};

struct CompileOptions {
  ComputeType compute = ComputeType::kBFloat16;
  ThreadPool* pool = nullptr;  // outlives the executable
};

// A compiled graph keeps no reference to `graph`. Throws kInvalidArgument listing the backends for
// an unknown name.
std::unique_ptr<Executable> CompileGraph(std::string_view backend, const Graph& graph,
                                         const CompileOptions& options);
// Throws kInvalidArgument listing the backends for an unknown name.
void CheckBackendName(std::string_view name);
std::vector<std::string> BackendNames();

}  // namespace octavo
