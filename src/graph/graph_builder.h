// Records a model. Module names are Hugging Face's ("model.layers.0.self_attn.q_proj"); ".weight"
// and ".bias" are added here. Shape mistakes throw kInternal naming the node, or kInvalidArgument
// where a config value causes them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "graph/graph.h"

namespace octavo {

class GraphBuilder {
 public:
  Value Embedding(const std::string& module, int64_t vocab, int64_t width);
  Value Linear(Value x, const std::string& module, int64_t out_features, bool bias = false);
  Value RmsNorm(Value x, const std::string& module, double eps, float weight_offset = 0.0f);
  // One norm per head of `head_dim` columns, all with the same weight [head_dim].
  Value HeadRmsNorm(Value x, const std::string& module, int64_t head_dim, double eps);
  Value Rope(Value x, int64_t heads, int64_t head_dim, const RopeParameters& parameters);

  struct AttentionShape {
    int64_t heads = 0;
    int64_t kv_heads = 0;
    int64_t head_dim = 0;
    double scale = 0.0;  // 0: 1/sqrt(head_dim)
    int64_t window = 0;
  };
  // Each call is a layer with a KV cache of its own.
  Value Attention(Value q, Value k, Value v, const AttentionShape& shape, const std::string& name);

  Value GatedActivation(Value gate, Value up, op::GatedActivation::Function function,
                        const std::string& name);
  Value Add(Value a, Value b, const std::string& name);
  Value SelectRows(Value x);
  // The output head: `module`.weight, or the embedding's table when tied.
  void Logits(Value x, const std::string& head_module, bool tied_to_embedding);
  void MarkHiddenState(Value value);
  void SetContextLength(int64_t tokens);
  // A tensor whose name ends so is passed over in silence when it is in the checkpoint.
  void IgnoreSuffix(std::string_view suffix);

  // Checks the whole and hands it out; the builder is empty afterwards.
  Graph Finish();

 private:
  Value AddNode(Op op, std::string name);
  WeightId AddWeight(std::string name, Shape shape, WeightRole role);
  Graph graph_;
};

}  // namespace octavo
