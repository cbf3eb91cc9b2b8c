// The text of a graph. Everything that changes what the model computes is in it, so two configs
// that give the same text are the same model.
#include <fmt/format.h>

#include "graph/graph.h"
#include "graph/rope.h"

namespace octavo {
namespace {

const char* Name(op::GatedActivation::Function function) {
  switch (function) {
    case op::GatedActivation::Function::kSilu:
      return "silu";
    case op::GatedActivation::Function::kGelu:
      return "gelu";
    case op::GatedActivation::Function::kGeluTanh:
      return "gelu_tanh";
    case op::GatedActivation::Function::kRelu:
      return "relu";
  }
  return "?";
}

class OpText {
 public:
  explicit OpText(const Graph& graph) : graph_(graph) {}

  std::string operator()(const op::Embedding& op) const {
    return fmt::format("embedding({})", Weight(op.table));
  }
  std::string operator()(const op::Linear& op) const {
    if (op.bias == kNoWeight) return fmt::format("linear(%{}, {})", op.x.id, Weight(op.weight));
    return fmt::format("linear(%{}, {}, {})", op.x.id, Weight(op.weight), Weight(op.bias));
  }
  std::string operator()(const op::RmsNorm& op) const {
    std::string text = fmt::format("rms_norm(%{}, {}, eps {}", op.x.id, Weight(op.weight), op.eps);
    if (op.group != graph_.info(op.x).width) text += fmt::format(", group {}", op.group);
    if (op.weight_offset != 0.0f) text += fmt::format(", weight_offset {}", op.weight_offset);
    return text + ")";
  }
  std::string operator()(const op::Rope& op) const {
    return fmt::format("rope(%{}, heads {}, head_dim {}, rope {})", op.x.id, op.heads, op.head_dim,
                       op.rope);
  }
  std::string operator()(const op::Attention& op) const {
    std::string text = fmt::format(
        "attention(%{}, %{}, %{}, kv_layer {}, heads {}, kv_heads {}, head_dim {}, scale {}",
        op.q.id, op.k.id, op.v.id, op.layer, op.heads, op.kv_heads, op.head_dim, op.scale);
    if (op.window != 0) text += fmt::format(", window {}", op.window);
    return text + ")";
  }
  std::string operator()(const op::GatedActivation& op) const {
    return fmt::format("gated_activation(%{}, %{}, {})", op.gate.id, op.up.id, Name(op.function));
  }
  std::string operator()(const op::Add& op) const {
    return fmt::format("add(%{}, %{})", op.a.id, op.b.id);
  }
  std::string operator()(const op::SelectRows& op) const {
    return fmt::format("select_rows(%{})", op.x.id);
  }

 private:
  std::string Weight(WeightId id) const {
    const WeightDecl& weight = graph_.weight(id);
    return fmt::format("{} {}", weight.name, ToString(weight.shape));
  }

  const Graph& graph_;
};

std::string List(const std::vector<double>& numbers) {
  std::string text;
  for (const double number : numbers)
    text += fmt::format("{}{}", text.empty() ? "[" : ", ", number);
  return text + "]";
}

std::string RopeText(const RopeParameters& rope) {
  std::string text =
      fmt::format("{}, theta {}, rotary_dim {}", Name(rope.type), rope.theta, rope.rotary_dim);
  const auto add = [&](const char* field, auto value) {
    text += fmt::format(", {} {}", field, value);
  };
  if (rope.type == RopeType::kDefault) return text;
  add("factor", rope.factor);
  if (rope.type == RopeType::kLinear) return text;
  add("max_position_embeddings", rope.max_position_embeddings);
  if (rope.type == RopeType::kDynamic) return text;
  add("original_max_position_embeddings", rope.original_max_position_embeddings);
  if (rope.type == RopeType::kLlama3) {
    add("low_freq_factor", rope.low_freq_factor);
    add("high_freq_factor", rope.high_freq_factor);
    return text;
  }
  add("attention_factor", rope.attention_factor);
  if (rope.type == RopeType::kYarn) {
    add("beta_fast", rope.beta_fast);
    add("beta_slow", rope.beta_slow);
    add("mscale", rope.mscale);
    add("mscale_all_dim", rope.mscale_all_dim);
    add("truncate", rope.truncate);
  } else {
    add("short_factor", List(rope.short_factor));
    add("long_factor", List(rope.long_factor));
  }
  return text;
}

}  // namespace

std::string Dump(const Graph& graph) {
  std::string text;
  for (size_t i = 0; i < graph.ropes().size(); ++i) {
    text += fmt::format("rope {}: {}\n", i, RopeText(graph.ropes()[i]));
  }
  for (const Node& node : graph.nodes()) {
    const ValueInfo& info = graph.info(node.output);
    text += fmt::format("%{} [{}, {}] = {}\n", node.output.id,
                        info.rows == Rows::kTokens ? "tokens" : "selected", info.width,
                        std::visit(OpText(graph), node.op));
  }
  text += fmt::format("logits %{}, vocabulary {}, context {}\n", graph.logits().id,
                      graph.vocab_size(), graph.context_length());
  return text;
}

}  // namespace octavo
