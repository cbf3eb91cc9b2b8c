// A model as a recorded program. Model files build it once (GraphBuilder); every backend, the
// loader's plan and `octavo inspect` read it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "graph/op.h"
#include "tensor/shape.h"

namespace octavo {

enum class WeightRole : uint8_t {
  kEmbedding,  // rows are looked up; stays 16-bit unless the head that is tied to it is quantized
  kLinear,     // quantizable
  kHead,       // lm_head: quantized only when asked for
  kVector,     // norm weights and biases: never quantized
};

struct WeightDecl {
  std::string name;  // checkpoint tensor name
  Shape shape;       // [out, in] or [n]
  WeightRole role = WeightRole::kLinear;
  bool tied_head = false;  // an embedding that serves as the head too

  int64_t out_features() const { return shape.size() == 2 ? shape[0] : 1; }  // rows of panels
  int64_t in_features() const { return shape.back(); }
};

struct ValueInfo {
  Rows rows = Rows::kTokens;
  int64_t width = 0;
};

struct Node {
  Op op;
  Value output;
  std::string name;  // "model.layers.0.self_attn.q_proj", for dumps, profiles and errors
};

class Graph {
 public:
  const std::vector<Node>& nodes() const { return nodes_; }  // in an order that can be run
  const std::vector<ValueInfo>& values() const { return values_; }
  const std::vector<WeightDecl>& weights() const { return weights_; }
  const std::vector<RopeParameters>& ropes() const { return ropes_; }
  const ValueInfo& info(Value value) const { return values_[static_cast<size_t>(value.id)]; }
  const WeightDecl& weight(WeightId id) const { return weights_[static_cast<size_t>(id)]; }

  Value logits() const { return logits_; }  // [selected, vocab]
  // hidden_states()[L] as transformers' output_hidden_states has it: 0 the embeddings, L after
  // layer L, the last after the final norm.
  const std::vector<Value>& hidden_states() const { return hidden_states_; }

  int64_t vocab_size() const { return vocab_size_; }
  int64_t context_length() const { return context_length_; }  // max_position_embeddings
  int32_t kv_layers() const { return kv_layers_; }
  // Checkpoint tensors that the model does not need and that are no surprise (rotary inv_freq
  // buffers; an lm_head.weight beside tied embeddings is not among them).
  bool IsIgnorable(std::string_view tensor_name) const;

 private:
  friend class GraphBuilder;
  std::vector<Node> nodes_;
  std::vector<ValueInfo> values_;
  std::vector<WeightDecl> weights_;
  std::vector<RopeParameters> ropes_;
  std::vector<Value> hidden_states_;
  std::vector<std::string> ignorable_suffixes_;
  Value logits_;
  int64_t vocab_size_ = 0;
  int64_t context_length_ = 0;
  int32_t kv_layers_ = 0;
};

// The values that an op reads.
std::vector<Value> Inputs(const Op& op);

// One line per node, for people and for tests:
//   %5 [tokens, 64] = linear(%3, model.layers.0.self_attn.q_proj.weight [64, 64])
std::string Dump(const Graph& graph);

}  // namespace octavo
