// Qwen3 (Yang et al. 2025, arXiv:2505.09388): Qwen2 without biases on q, k and v, with an RMS norm
// on each head of q and k instead.
#include <fmt/format.h>

#include <string>
#include <vector>

#include "models/architectures.h"
#include "models/decoder_common.h"

namespace octavo {

Graph BuildQwen3(const HfConfig& json) {
  const DecoderConfig config =
      ReadDecoderConfig(json, {.max_position_embeddings = 32768, .head_dim = 128});
  const std::vector<int64_t> windows = ReadLayerWindows(json, config.layers);
  const bool attention_bias = json.Bool("attention_bias", false);  // of q, k, v and o alike

  GraphBuilder graph;
  Value x = graph.Embedding("model.embed_tokens", config.vocab_size, config.hidden_size);
  for (int64_t i = 0; i < config.layers; ++i) {  // x [tokens, hidden]
    const std::string layer = fmt::format("model.layers.{}", i);
    graph.MarkHiddenState(x);

    Value h = graph.RmsNorm(x, layer + ".input_layernorm", config.norm_eps);
    h = SelfAttention(graph, h, layer + ".self_attn", config,
                      {.qkv_bias = attention_bias,
                       .output_bias = attention_bias,
                       .head_norm = true,
                       .window = windows[static_cast<size_t>(i)]});
    x = graph.Add(x, h, layer + ".attention_residual");

    h = graph.RmsNorm(x, layer + ".post_attention_layernorm", config.norm_eps);
    h = GatedMlp(graph, h, layer + ".mlp", config, /*bias=*/false);
    x = graph.Add(x, h, layer + ".mlp_residual");
  }
  x = graph.RmsNorm(x, "model.norm", config.norm_eps);
  graph.MarkHiddenState(x);

  graph.Logits(graph.SelectRows(x), "lm_head", config.tied);  // [selected, vocab]
  graph.SetContextLength(config.max_position_embeddings);
  graph.IgnoreSuffix("rotary_emb.inv_freq");  // computed, old checkpoints store it all the same
  return graph.Finish();
}

}  // namespace octavo
