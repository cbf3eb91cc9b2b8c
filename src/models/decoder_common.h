// What the decoder-only models share: reading the usual fields of config.json, and the two blocks
// that most of them are made of. The order of norms and residuals is each model's own.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/hf_config.h"
#include "graph/graph_builder.h"

namespace octavo {

struct DecoderConfig {
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t max_position_embeddings = 0;
  double norm_eps = 0.0;
  bool tied = false;  // the embedding serves as the head
  op::GatedActivation::Function activation = op::GatedActivation::Function::kSilu;
  RopeParameters rope;
};

// What a family of models takes where config.json is silent (transformers' configuration classes).
struct DecoderDefaults {
  int64_t max_position_embeddings = 0;
  int64_t head_dim = 0;  // 0: hidden_size / num_attention_heads
};

// Throws kInvalidArgument naming the field that is missing or makes no sense.
DecoderConfig ReadDecoderConfig(const HfConfig& config, const DecoderDefaults& defaults);

// The attention window of each layer, 0 for full attention, from use_sliding_window,
// sliding_window, max_window_layers and layer_types (Qwen).
std::vector<int64_t> ReadLayerWindows(const HfConfig& config, int64_t layers);

struct SelfAttentionOptions {
  bool qkv_bias = false;
  bool output_bias = false;
  bool head_norm = false;  // RMS norm of each head of q and k before the rotation
  int64_t window = 0;
};

// o_proj(attention(rope(q_proj(x)), rope(k_proj(x)), v_proj(x))). x [tokens, hidden] -> same
Value SelfAttention(GraphBuilder& graph, Value x, const std::string& name,
                    const DecoderConfig& config, const SelfAttentionOptions& options);

// down_proj(activation(gate_proj(x)) * up_proj(x)). x [tokens, hidden] -> same
Value GatedMlp(GraphBuilder& graph, Value x, const std::string& name, const DecoderConfig& config,
               bool bias);

}  // namespace octavo
