#include "models/decoder_common.h"

#include <fmt/format.h>
#include <octavo/error.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <utility>

#include "models/rope_config.h"

namespace octavo {
namespace {

// Limits that no real model comes near. Within them every product of two sizes stays far below
// 2^63.
constexpr int64_t kMaxVocabulary = int64_t{1} << 26;
constexpr int64_t kMaxWidth = int64_t{1} << 24;
constexpr int64_t kMaxHeads = int64_t{1} << 14;
constexpr int64_t kMaxHeadDim = int64_t{1} << 12;
constexpr int64_t kMaxLayers = 1024;
constexpr int64_t kMaxPositions = int64_t{1} << 30;

op::GatedActivation::Function ReadActivation(const HfConfig& config) {
  using Function = op::GatedActivation::Function;
  constexpr std::array<std::pair<std::string_view, Function>, 6> kFunctions = {{
      {"silu", Function::kSilu},
      {"swish", Function::kSilu},
      {"gelu", Function::kGelu},
      {"gelu_pytorch_tanh", Function::kGeluTanh},
      {"gelu_new", Function::kGeluTanh},
      {"relu", Function::kRelu},
  }};
  const std::string name = config.String("hidden_act", "silu");
  std::string supported;
  for (const auto& [known, function] : kFunctions) {
    if (known == name) return function;
    if (!supported.empty()) supported += ", ";
    supported += known;
  }
  throw Error(ErrorCode::kUnimplemented,
              fmt::format("{}: hidden_act: \"{}\" is not supported; supported are {}",
                          config.path(), name, supported));
}

int64_t ReadHeadDim(const HfConfig& config, const DecoderConfig& sizes, int64_t fallback) {
  if (config.Has("head_dim")) return config.Size("head_dim", kMaxHeadDim);
  if (fallback > 0) return fallback;
  if (sizes.hidden_size % sizes.heads != 0) {
    config.Refuse(
        "hidden_size",
        fmt::format("expected a multiple of num_attention_heads {} (there is no head_dim), "
                    "found {}",
                    sizes.heads, sizes.hidden_size));
  }
  return sizes.hidden_size / sizes.heads;
}

double ReadNormEps(const HfConfig& config) {
  const double eps = config.Float("rms_norm_eps", 1e-6);
  if (!std::isfinite(eps) || eps < 0.0) {
    config.Refuse("rms_norm_eps", fmt::format("expected 0 or more, found {}", eps));
  }
  return eps;
}

}  // namespace

DecoderConfig ReadDecoderConfig(const HfConfig& config, const DecoderDefaults& defaults) {
  DecoderConfig result;
  result.vocab_size = config.Size("vocab_size", kMaxVocabulary);
  result.hidden_size = config.Size("hidden_size", kMaxWidth);
  result.intermediate_size = config.Size("intermediate_size", kMaxWidth);
  result.layers = config.Size("num_hidden_layers", kMaxLayers);
  result.heads = config.Size("num_attention_heads", kMaxHeads);
  result.kv_heads = config.Size("num_key_value_heads", result.heads, kMaxHeads);
  if (result.heads % result.kv_heads != 0) {
    config.Refuse("num_key_value_heads",
                  fmt::format("expected a divisor of num_attention_heads {}, found {}",
                              result.heads, result.kv_heads));
  }
  result.head_dim = ReadHeadDim(config, result, defaults.head_dim);
  result.max_position_embeddings =
      config.Size("max_position_embeddings", defaults.max_position_embeddings, kMaxPositions);
  result.norm_eps = ReadNormEps(config);
  result.tied = config.Bool("tie_word_embeddings", false);
  result.activation = ReadActivation(config);
  result.rope = ReadRopeParameters(config, result.head_dim, result.max_position_embeddings);
  return result;
}

std::vector<int64_t> ReadLayerWindows(const HfConfig& config, int64_t layers) {
  std::vector<int64_t> windows(static_cast<size_t>(layers), 0);
  // sliding_window counts only while use_sliding_window says so; null turns it off too.
  const bool sliding = config.Bool("use_sliding_window", false) && !config.IsNull("sliding_window");
  const int64_t window = sliding ? config.Size("sliding_window", 4096, kMaxPositions) : 0;
  const std::vector<std::string> types = config.StringList("layer_types");
  if (types.empty()) {
    const int64_t first = config.Int("max_window_layers", 28);
    for (int64_t i = std::max<int64_t>(first, 0); i < layers; ++i) {
      windows[static_cast<size_t>(i)] = window;
    }
    return windows;
  }
  if (types.size() != windows.size()) {
    config.Refuse("layer_types", fmt::format("expected {} entries (num_hidden_layers), found {}",
                                             layers, types.size()));
  }
  for (size_t i = 0; i < types.size(); ++i) {
    if (types[i] == "full_attention") continue;
    if (types[i] != "sliding_attention") {
      throw Error(ErrorCode::kUnimplemented,
                  fmt::format("{}: layer_types[{}]: \"{}\" is not supported; supported are "
                              "full_attention and sliding_attention",
                              config.path(), i, types[i]));
    }
    if (!sliding) {
      config.Refuse("layer_types",
                    fmt::format("layer {} is sliding_attention but there is no sliding window", i));
    }
    windows[i] = window;
  }
  return windows;
}

Value SelfAttention(GraphBuilder& graph, Value x, const std::string& name,
                    const DecoderConfig& config, const SelfAttentionOptions& options) {
  const int64_t q_width = config.heads * config.head_dim;
  const int64_t kv_width = config.kv_heads * config.head_dim;
  Value q = graph.Linear(x, name + ".q_proj", q_width, options.qkv_bias);   // [tokens, q_width]
  Value k = graph.Linear(x, name + ".k_proj", kv_width, options.qkv_bias);  // [tokens, kv_width]
  Value v = graph.Linear(x, name + ".v_proj", kv_width, options.qkv_bias);  // [tokens, kv_width]
  if (options.head_norm) {
    q = graph.HeadRmsNorm(q, name + ".q_norm", config.head_dim, config.norm_eps);
    k = graph.HeadRmsNorm(k, name + ".k_norm", config.head_dim, config.norm_eps);
  }
  q = graph.Rope(q, config.heads, config.head_dim, config.rope);
  k = graph.Rope(k, config.kv_heads, config.head_dim, config.rope);
  const Value mixed = graph.Attention(q, k, v,  // [tokens, q_width]
                                      {.heads = config.heads,
                                       .kv_heads = config.kv_heads,
                                       .head_dim = config.head_dim,
                                       .window = options.window},
                                      name);
  return graph.Linear(mixed, name + ".o_proj", config.hidden_size, options.output_bias);
}

Value GatedMlp(GraphBuilder& graph, Value x, const std::string& name, const DecoderConfig& config,
               bool bias) {
  const int64_t width = config.intermediate_size;
  const Value gate = graph.Linear(x, name + ".gate_proj", width, bias);  // [tokens, width]
  const Value up = graph.Linear(x, name + ".up_proj", width, bias);      // [tokens, width]
  const Value gated = graph.GatedActivation(gate, up, config.activation, name + ".act");
  return graph.Linear(gated, name + ".down_proj", config.hidden_size, bias);
}

}  // namespace octavo
