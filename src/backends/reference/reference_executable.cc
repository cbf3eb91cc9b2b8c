#include "backends/reference/reference_executable.h"

#include <fmt/format.h>
#include <octavo/error.h>

#include <algorithm>
#include <atomic>
#include <utility>
#include <vector>

#include "backends/reference/reference_ops.h"

namespace octavo {
namespace {

using reference::KvCache;
using reference::Matrix;

[[noreturn]] void ThrowInternal(const std::string& message) {
  throw Error(ErrorCode::kInternal, "reference backend: " + message);
}

// Which values each node is the last to read: their memory is free after it.
std::vector<std::vector<Value>> FindLastUses(const Graph& graph) {
  std::vector<std::vector<Value>> ending(graph.nodes().size());
  std::vector<bool> seen(graph.values().size(), false);
  for (size_t n = graph.nodes().size(); n-- > 0;) {
    for (const Value value : Inputs(graph.nodes()[n].op)) {
      if (seen[static_cast<size_t>(value.id)]) continue;
      seen[static_cast<size_t>(value.id)] = true;
      ending[n].push_back(value);
    }
  }
  return ending;
}

class ReferenceExecutable final : public Executable {
 public:
  ReferenceExecutable(const Graph& graph, ThreadPool* pool)
      : graph_(graph),
        pool_(pool),
        last_uses_(FindLastUses(graph_)),
        weights_(graph_.weights().size()) {
    kv_.resize(static_cast<size_t>(graph_.kv_layers()));
    for (const Node& node : graph_.nodes()) {
      if (const auto* attention = std::get_if<op::Attention>(&node.op)) {
        kv_[static_cast<size_t>(attention->layer)].width =
            attention->kv_heads * attention->head_dim;
      }
    }
  }

  void BeginWeight(WeightId id, const WeightFormat& format) override {
    const WeightDecl& decl = graph_.weight(id);
    const bool plain = format.granularity == Granularity::kNone && IsFloat(format.element);
    if (!plain && format != WeightFormat::S8Channel()) {
      throw Error(ErrorCode::kUnimplemented,
                  fmt::format("{}: the reference backend does not know the weight format {}",
                              decl.name, ToString(format)));
    }
    Weight& weight = weights_[static_cast<size_t>(id)];
    if (weight.values.rows != 0) ThrowInternal(decl.name + " begins twice");
    weight.values = Matrix(decl.out_features(), decl.in_features());
    weight.format = format;
  }

  void PutPanel(WeightId id, const WeightPanel& panel) override {
    const WeightDecl& decl = graph_.weight(id);
    Weight& weight = weights_[static_cast<size_t>(id)];
    Matrix& values = weight.values;  // [out, in]
    if (panel.row_begin < 0 || panel.rows < 1 || panel.row_begin + panel.rows > values.rows) {
      ThrowInternal(fmt::format("{}: a panel of rows [{}, {}) for a weight of {} rows", decl.name,
                                panel.row_begin, panel.row_begin + panel.rows, values.rows));
    }
    if (weight.format.granularity == Granularity::kNone) {
      ConvertToF32(weight.format.element, panel.values, panel.rows * values.width,
                   values.row(panel.row_begin));
    } else {
      const int8_t* codes = static_cast<const int8_t*>(panel.values);  // [rows, in]
      for (int64_t r = 0; r < panel.rows; ++r) {
        float* row = values.row(panel.row_begin + r);
        for (int64_t i = 0; i < values.width; ++i) {
          row[i] = static_cast<float>(*codes++) * panel.scales[r];
        }
      }
    }
    weight.rows_arrived += panel.rows;
  }

  void EndWeights() override {
    for (size_t i = 0; i < weights_.size(); ++i) {
      const WeightDecl& decl = graph_.weights()[i];
      const int64_t arrived = weights_[i].rows_arrived;
      if (arrived != decl.out_features()) {
        ThrowInternal(fmt::format("{}: expected {} rows, {} arrived", decl.name,
                                  decl.out_features(), arrived));
      }
    }
  }

  void AllocateKvCache(int64_t blocks) override {
    for (KvCache& layer : kv_) {
      const size_t bytes =
          static_cast<size_t>(blocks * kKvBlockTokens * layer.width) * sizeof(float);
      layer.keys = Buffer(bytes);
      layer.values = Buffer(bytes);
    }
    kv_blocks_ = blocks;
  }

  uint64_t KvBytesPerBlock() const override {
    uint64_t floats = 0;
    for (const KvCache& layer : kv_)
      floats += 2 * static_cast<uint64_t>(kKvBlockTokens * layer.width);
    return floats * sizeof(float);
  }

  uint64_t WorkspaceBytes(int64_t tokens, int64_t selected) const override {
    const auto floats = [&](Value value) {
      const ValueInfo& info = graph_.info(value);
      return static_cast<uint64_t>((info.rows == Rows::kTokens ? tokens : selected) * info.width);
    };
    uint64_t live = 0;
    uint64_t most = 0;
    for (size_t n = 0; n < graph_.nodes().size(); ++n) {
      const Node& node = graph_.nodes()[n];
      live += floats(node.output);
      most = std::max(most, live);
      for (const Value value : last_uses_[n]) live -= floats(value);
    }
    return most * sizeof(float);
  }

  std::span<const float> Run(const ForwardBatch& batch) override {
    CheckBatch(batch);
    std::vector<Matrix> values(graph_.values().size());
    for (size_t n = 0; n < graph_.nodes().size(); ++n) {
      const Node& node = graph_.nodes()[n];
      Matrix& output = values[static_cast<size_t>(node.output.id)];
      output = std::visit([&](const auto& op) { return Compute(op, values, batch); }, node.op);
      ReportHiddenState(batch, node.output, output);
      for (const Value value : last_uses_[n]) values[static_cast<size_t>(value.id)] = Matrix();
    }
    logits_ = std::move(values[static_cast<size_t>(graph_.logits().id)]);  // [selected, vocab]
    return logits_.data;
  }

  ExecutableInfo Info() const override {
    ExecutableInfo info;
    for (const WeightDecl& decl : graph_.weights()) {
      const uint64_t bytes =
          static_cast<uint64_t>(decl.out_features() * decl.in_features()) * sizeof(float);
      info.weight_bytes += bytes;
      if (decl.role != WeightRole::kEmbedding || decl.tied_head) info.streamed_bytes += bytes;
    }
    info.kernels = {"linear_f32_reference"};
    return info;
  }

 private:
  struct Weight {
    Matrix values;  // [out, in], a vector [1, n]
    WeightFormat format;
    std::atomic<int64_t> rows_arrived{0};
  };
  using Values = std::vector<Matrix>;

  // One overload per op. Adding an op without one does not compile.
  Matrix Compute(const op::Embedding& op, const Values&, const ForwardBatch& batch) {
    return reference::Embedding(batch.token_ids, WeightOf(op.table));
  }
  Matrix Compute(const op::Linear& op, const Values& values, const ForwardBatch&) {
    const Matrix* bias = op.bias == kNoWeight ? nullptr : &WeightOf(op.bias);
    return reference::Linear(At(values, op.x), WeightOf(op.weight), bias, pool_);
  }
  Matrix Compute(const op::RmsNorm& op, const Values& values, const ForwardBatch&) {
    return reference::RmsNorm(At(values, op.x), WeightOf(op.weight), op);
  }
  Matrix Compute(const op::Rope& op, const Values& values, const ForwardBatch& batch) {
    const RopeParameters& parameters = graph_.ropes()[static_cast<size_t>(op.rope)];
    return reference::Rope(At(values, op.x), op, parameters, batch.sequences);
  }
  Matrix Compute(const op::Attention& op, const Values& values, const ForwardBatch& batch) {
    KvCache& cache = kv_[static_cast<size_t>(op.layer)];
    return reference::Attention(At(values, op.q), At(values, op.k), At(values, op.v), op,
                                batch.sequences, cache, pool_);
  }
  Matrix Compute(const op::GatedActivation& op, const Values& values, const ForwardBatch&) {
    return reference::GatedActivation(At(values, op.gate), At(values, op.up), op.function);
  }
  Matrix Compute(const op::Add& op, const Values& values, const ForwardBatch&) {
    return reference::Add(At(values, op.a), At(values, op.b));
  }
  Matrix Compute(const op::SelectRows& op, const Values& values, const ForwardBatch& batch) {
    return reference::SelectRows(At(values, op.x), batch.output_rows);
  }

  static const Matrix& At(const Values& values, Value value) {
    return values[static_cast<size_t>(value.id)];
  }
  const Matrix& WeightOf(WeightId id) const { return weights_[static_cast<size_t>(id)].values; }

  void ReportHiddenState(const ForwardBatch& batch, Value value, const Matrix& matrix) const {
    if (!batch.on_hidden_state) return;
    const std::vector<Value>& states = graph_.hidden_states();
    for (size_t i = 0; i < states.size(); ++i) {
      if (states[i] == value) {
        batch.on_hidden_state(static_cast<int64_t>(i), matrix.data.data(), matrix.rows,
                              matrix.width);
      }
    }
  }

  // What backend.h asks of a batch: an oracle that reads past the end would prove nothing.
  void CheckBatch(const ForwardBatch& batch) const {
    const int64_t tokens = static_cast<int64_t>(batch.token_ids.size());
    for (const int32_t id : batch.token_ids) {
      if (id < 0 || id >= graph_.vocab_size()) ThrowInternal(fmt::format("token id {}", id));
    }
    for (const int32_t row : batch.output_rows) {
      if (row < 0 || row >= tokens) ThrowInternal(fmt::format("output row {} of {}", row, tokens));
    }
    int64_t rows = 0;
    for (const SequenceRows& sequence : batch.sequences) {
      rows += sequence.rows;
      const int64_t end = sequence.first_position + sequence.rows;
      const int64_t needed = (end + kKvBlockTokens - 1) / kKvBlockTokens;
      if (static_cast<int64_t>(sequence.block_table.size()) < needed) {
        ThrowInternal(fmt::format("{} KV blocks for {} tokens", sequence.block_table.size(), end));
      }
      for (const int32_t block : sequence.block_table) {
        if (block < 0 || block >= kv_blocks_) {
          ThrowInternal(fmt::format("KV block {} of {}", block, kv_blocks_));
        }
      }
    }
    if (rows != tokens) {
      ThrowInternal(fmt::format("{} tokens in sequences of {} rows", tokens, rows));
    }
  }

  const Graph graph_;
  ThreadPool* const pool_;
  const std::vector<std::vector<Value>> last_uses_;  // [nodes]
  std::vector<Weight> weights_;
  std::vector<KvCache> kv_;  // [layers]
  int64_t kv_blocks_ = 0;
  Matrix logits_;
};

}  // namespace

std::unique_ptr<Executable> MakeReferenceExecutable(const Graph& graph,
                                                    const CompileOptions& options) {
  return std::make_unique<ReferenceExecutable>(graph, options.pool);
}

}  // namespace octavo
