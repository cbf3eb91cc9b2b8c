// The operations of a model: about two dozen at transformer level, each a plain struct in one
// variant. Adding one means its struct, its shape rule (shape_rules.cc), its text (dump.cc) and a
// case in each backend; std::visit makes the compiler name the place that was forgotten.
//
// A value is a matrix [rows, width] of floats: rows is symbolic (Rows), width is fixed.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

namespace octavo {

// A value of the graph: an index into Graph::values().
struct Value {
  int32_t id = -1;
  bool operator==(const Value&) const = default;
};

// A weight of the graph: an index into Graph::weights(). kNoWeight where an optional one is absent.
using WeightId = int32_t;
inline constexpr WeightId kNoWeight = -1;

// How many rows a value has in a forward batch.
enum class Rows : uint8_t {
  kTokens,    // one per token of the batch
  kSelected,  // one per row whose output is wanted (ForwardBatch::output_rows)
};

enum class RopeType : uint8_t { kDefault, kLinear, kDynamic, kYarn, kLongrope, kLlama3 };

// Rotary position embedding as transformers' rope_parameters / rope_scaling describe it
// (modeling_rope_utils). Angles: position * inverse frequency; see rope.h.
struct RopeParameters {
  RopeType type = RopeType::kDefault;
  double theta = 10000.0;
  int64_t rotary_dim = 0;  // leading dims of each head that rotate
  double factor = 1.0;
  int64_t max_position_embeddings = 0;  // of the config: dynamic and longrope compare with it
  // yarn, longrope, llama3; 0: as max_position_embeddings
  int64_t original_max_position_embeddings = 0;
  double low_freq_factor = 1.0;      // llama3
  double high_freq_factor = 4.0;     // llama3
  double beta_fast = 32.0;           // yarn
  double beta_slow = 1.0;            // yarn
  double mscale = 0.0;               // yarn; 0: absent
  double mscale_all_dim = 0.0;       // yarn; 0: absent
  double attention_factor = 0.0;     // yarn, longrope; 0: computed from factor
  bool truncate = true;              // yarn
  std::vector<double> short_factor;  // longrope
  std::vector<double> long_factor;   // longrope
  bool operator==(const RopeParameters&) const = default;
};

namespace op {

// Row `id` of the table for each token. -> [tokens, width]
struct Embedding {
  WeightId table;  // [vocab, width]
};

// y = x w^T + bias. x [rows, in] -> [rows, out]
struct Linear {
  Value x;
  WeightId weight;            // [out, in]
  WeightId bias = kNoWeight;  // [out]
};

// x / sqrt(mean(x^2) + eps) * (weight + weight_offset), over groups of `group` columns (the head
// dimension for per-head q/k norms; the whole width otherwise). x [rows, width] -> same
struct RmsNorm {
  Value x;
  WeightId weight;  // [group]
  float eps;
  int64_t group;
  float weight_offset = 0.0f;
};

// Rotates each head by the token's position. x [tokens, heads * head_dim] -> same
struct Rope {
  Value x;
  int64_t heads;
  int64_t head_dim;
  int32_t rope;  // index into Graph::ropes()
};

// Appends k and v to the KV cache of `layer` and attends causally to it.
// q [tokens, heads * head_dim], k and v [tokens, kv_heads * head_dim] -> [tokens, heads * head_dim]
struct Attention {
  Value q, k, v;
  int32_t layer;  // which KV cache: 0 .. Graph::kv_layers() - 1
  int64_t heads;
  int64_t kv_heads;
  int64_t head_dim;
  float scale;         // of q.k
  int64_t window = 0;  // a token sees itself and the window - 1 before it; 0: all before it
};

// activation(gate) * up. [rows, width] each -> same
struct GatedActivation {
  Value gate, up;
  enum class Function : uint8_t { kSilu, kGelu, kGeluTanh, kRelu } function;
};

// a + b, same shape.
struct Add {
  Value a, b;
};

// Keeps the rows whose output is wanted. [tokens, width] -> [selected, width]
struct SelectRows {
  Value x;
};

}  // namespace op

using Op = std::variant<op::Embedding, op::Linear, op::RmsNorm, op::Rope, op::Attention,
                        op::GatedActivation, op::Add, op::SelectRows>;

}  // namespace octavo
