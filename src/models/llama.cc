// Llama (Touvron et al. 2023, arXiv:2302.13971; Llama 3: arXiv:2407.21783): pre-norm blocks of
// grouped-query attention with rotary positions and a gated MLP.
#include <fmt/format.h>

#include <string>

#include "models/architectures.h"
#include "models/decoder_common.h"

namespace octavo {

Graph BuildLlama(const HfConfig& json) {
  const DecoderConfig config = ReadDecoderConfig(json, {.max_position_embeddings = 2048});
  const bool attention_bias = json.Bool("attention_bias", false);  // of q, k, v and o alike
  const bool mlp_bias = json.Bool("mlp_bias", false);

  GraphBuilder graph;
  Value x = graph.Embedding("model.embed_tokens", config.vocab_size, config.hidden_size);
  for (int64_t i = 0; i < config.layers; ++i) {  // x [tokens, hidden]
    const std::string layer = fmt::format("model.layers.{}", i);
    graph.MarkHiddenState(x);

    Value h = graph.RmsNorm(x, layer + ".input_layernorm", config.norm_eps);
    h = SelfAttention(graph, h, layer + ".self_attn", config,
                      {.qkv_bias = attention_bias, .output_bias = attention_bias});
    x = graph.Add(x, h, layer + ".attention_residual");

    h = graph.RmsNorm(x, layer + ".post_attention_layernorm", config.norm_eps);
    h = GatedMlp(graph, h, layer + ".mlp", config, /*bias=*/mlp_bias);
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
