#include "unit/backends/cpu_support.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <utility>

#include "base/float16.h"
#include "graph/graph_builder.h"

namespace octavo::testing {
namespace {

constexpr int64_t kCacheBlocks = 64;

Value Layer(GraphBuilder& graph, Value x, const std::string& name, const DecoderShape& s,
            const RopeParameters& rope) {
  Value h = graph.RmsNorm(x, name + ".input_norm", 1e-5);
  Value q = graph.Linear(h, name + ".q", s.heads * s.head_dim, true);
  Value k = graph.Linear(h, name + ".k", s.kv_heads * s.head_dim);
  const Value v = graph.Linear(h, name + ".v", s.kv_heads * s.head_dim);
  if (s.head_norm) {
    q = graph.HeadRmsNorm(q, name + ".q_norm", s.head_dim, 1e-5);
    k = graph.HeadRmsNorm(k, name + ".k_norm", s.head_dim, 1e-5);
  }
  q = graph.Rope(q, s.heads, s.head_dim, rope);
  k = graph.Rope(k, s.kv_heads, s.head_dim, rope);
  h = graph.Attention(
      q, k, v,
      {.heads = s.heads, .kv_heads = s.kv_heads, .head_dim = s.head_dim, .window = s.window}, name);
  x = graph.Add(x, graph.Linear(h, name + ".o", s.hidden), name + ".add");
  h = graph.RmsNorm(x, name + ".post_norm", 1e-5);
  const Value gate = graph.Linear(h, name + ".gate", s.intermediate);
  const Value up = graph.Linear(h, name + ".up", s.intermediate);
  h = graph.GatedActivation(gate, up, op::GatedActivation::Function::kSilu, name + ".act");
  return graph.Add(x, graph.Linear(h, name + ".down", s.hidden), name + ".add2");
}

// Values of `element` as bytes, [rows, columns], with a deviation that keeps activations near 1.
std::vector<char> RandomRows(DType element, int64_t rows, int64_t columns, std::mt19937& engine) {
  std::normal_distribution<float> normal(0.0f, 1.0f / std::sqrt(static_cast<float>(columns)));
  std::uniform_int_distribution<int> code(-127, 127);
  std::vector<char> bytes(static_cast<size_t>(rows * columns * ByteSize(element)));
  for (int64_t i = 0; i < rows * columns; ++i) {
    char* at = bytes.data() + i * ByteSize(element);
    const float value = normal(engine);
    if (element == DType::kS8) {
      *at = static_cast<char>(code(engine));
    } else if (element == DType::kF32) {
      std::memcpy(at, &value, 4);
    } else {
      const uint16_t word = element == DType::kBf16 ? F32ToBf16(value) : F32ToF16(value);
      std::memcpy(at, &word, 2);
    }
  }
  return bytes;
}

}  // namespace

Graph MakeDecoder(const DecoderShape& s) {
  GraphBuilder graph;
  RopeParameters rope;
  rope.type = s.rope;
  rope.rotary_dim = s.head_dim;
  rope.factor = 2.0;
  rope.max_position_embeddings = 40;
  Value x = graph.Embedding("embed", s.vocab, s.hidden);
  for (int64_t i = 0; i < s.layers; ++i) {
    graph.MarkHiddenState(x);
    x = Layer(graph, x, "layer" + std::to_string(i), s, rope);
  }
  x = graph.RmsNorm(x, "norm", 1e-5);
  graph.MarkHiddenState(x);
  graph.Logits(graph.SelectRows(x), "head", s.tied);
  graph.SetContextLength(512);
  return graph.Finish();
}

ElementOf All(DType element) {
  return [element](const WeightDecl&, WeightId) { return element; };
}

void FillWeights(const Graph& graph, const ElementOf& element_of, Executable& executable) {
  std::mt19937 engine(5);
  for (size_t i = 0; i < graph.weights().size(); ++i) {
    const WeightDecl& decl = graph.weights()[i];
    const WeightId id = static_cast<WeightId>(i);
    DType element = element_of(decl, id);
    if (decl.role == WeightRole::kVector && element == DType::kS8) element = DType::kF32;
    const bool s8 = element == DType::kS8;
    executable.BeginWeight(id, s8 ? WeightFormat::S8Channel() : WeightFormat::Plain(element));
    for (int64_t row = 0; row < decl.out_features(); row += 16) {
      const int64_t rows = std::min<int64_t>(16, decl.out_features() - row);
      // Each panel in memory of its own, gone once it is put.
      const std::vector<char> values = RandomRows(element, rows, decl.in_features(), engine);
      const std::vector<float> scales(static_cast<size_t>(rows),
                                      0.014f / std::sqrt(static_cast<float>(decl.in_features())));
      executable.PutPanel(id, {row, rows, values.data(), s8 ? scales.data() : nullptr});
    }
  }
  executable.EndWeights();
}

Session::Session(Executable& executable, int64_t vocab) : executable_(executable), vocab_(vocab) {
  executable.AllocateKvCache(kCacheBlocks);
  for (int32_t i = 0; i < kCacheBlocks; ++i) free_blocks_.push_back(i);
  std::shuffle(free_blocks_.begin(), free_blocks_.end(), std::mt19937(3));
}

Session::Sequence Session::NewSequence(int64_t tokens, uint32_t seed) {
  Sequence sequence;
  std::mt19937 engine(seed);
  std::uniform_int_distribution<int32_t> id(0, static_cast<int32_t>(vocab_) - 1);
  for (int64_t i = 0; i < tokens; ++i) sequence.tokens.push_back(id(engine));
  for (int64_t i = 0; i < tokens; i += kKvBlockTokens) {
    sequence.blocks.push_back(free_blocks_.at(free_blocks_.size() - 1));
    free_blocks_.pop_back();
  }
  return sequence;
}

std::vector<std::vector<float>> Session::Run(const std::vector<Sequence*>& sequences,
                                             const std::vector<int64_t>& rows) {
  std::vector<int32_t> tokens, output_rows;
  std::vector<SequenceRows> parts;
  for (size_t i = 0; i < sequences.size(); ++i) {
    Sequence& sequence = *sequences[i];
    for (int64_t j = 0; j < rows[i]; ++j) {
      output_rows.push_back(static_cast<int32_t>(tokens.size()));
      tokens.push_back(sequence.tokens.at(static_cast<size_t>(sequence.length + j)));
    }
    parts.push_back({.rows = rows[i],
                     .first_position = sequence.length,
                     .rope_length = static_cast<int64_t>(sequence.tokens.size()),
                     .block_table = sequence.blocks});
    sequence.length += rows[i];
  }
  const std::span<const float> logits =
      executable_.Run({.token_ids = tokens, .sequences = parts, .output_rows = output_rows});
  std::vector<std::vector<float>> result;
  auto at = logits.begin();
  for (const int64_t count : rows) {
    result.emplace_back(at, at + count * vocab_);
    at += count * vocab_;
  }
  return result;
}

std::vector<float> Session::RunAlone(Sequence sequence, int64_t chunk) {
  std::vector<float> logits;
  const int64_t total = static_cast<int64_t>(sequence.tokens.size());
  while (sequence.length < total) {
    const auto rows = Run({&sequence}, {std::min(chunk, total - sequence.length)});
    logits.insert(logits.end(), rows[0].begin(), rows[0].end());
  }
  return logits;
}

}  // namespace octavo::testing
