// Mistral (Jiang et al. 2023, arXiv:2310.06825): Llama without biases, with a sliding window on
// every layer in the first release and none later.
#include <fmt/format.h>

#include <string>

#include "models/architectures.h"
#include "models/decoder_common.h"

namespace octavo {

Graph BuildMistral(const HfConfig& json) {
  const DecoderConfig config = ReadDecoderConfig(json, {.max_position_embeddings = 131072});
  // Without the field it is 4096, the first release's; null turns it off.
  const int64_t window =
      json.IsNull("sliding_window") ? 0 : json.Size("sliding_window", 4096, int64_t{1} << 31);

  GraphBuilder graph;
  Value x = graph.Embedding("model.embed_tokens", config.vocab_size, config.hidden_size);
  for (int64_t i = 0; i < config.layers; ++i) {  // x [tokens, hidden]
    const std::string layer = fmt::format("model.layers.{}", i);
    graph.MarkHiddenState(x);

    Value h = graph.RmsNorm(x, layer + ".input_layernorm", config.norm_eps);
    h = SelfAttention(graph, h, layer + ".self_attn", config, {.window = window});
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
