#include "graph/graph_builder.h"

#include <fmt/format.h>
#include <octavo/error.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "graph/rope.h"
#include "graph/shape_rules.h"

namespace octavo {
namespace {

[[noreturn]] void Refuse(const std::string& node, const std::string& problem) {
  throw Error(ErrorCode::kInvalidArgument, fmt::format("{}: {}", node, problem));
}

void CheckPositive(const std::string& node, const char* what, int64_t value) {
  if (value < 1) Refuse(node, fmt::format("{}: expected at least 1, found {}", what, value));
}

int64_t WidthOf(const Graph& graph, Value value, const std::string& node) {
  if (value.id < 0 || static_cast<size_t>(value.id) >= graph.values().size()) {
    throw Error(ErrorCode::kInternal,
                fmt::format("graph node {}: there is no value %{}", node, value.id));
  }
  return graph.info(value).width;
}

}  // namespace

Value GraphBuilder::Embedding(const std::string& module, int64_t vocab, int64_t width) {
  CheckPositive(module, "vocabulary", vocab);
  CheckPositive(module, "width", width);
  graph_.vocab_size_ = vocab;
  const WeightId table = AddWeight(module + ".weight", {vocab, width}, WeightRole::kEmbedding);
  return AddNode(op::Embedding{table}, module);
}

Value GraphBuilder::Linear(Value x, const std::string& module, int64_t out_features, bool bias) {
  CheckPositive(module, "out_features", out_features);
  const int64_t in_features = WidthOf(graph_, x, module);
  op::Linear linear{
      x, AddWeight(module + ".weight", {out_features, in_features}, WeightRole::kLinear)};
  if (bias) linear.bias = AddWeight(module + ".bias", {out_features}, WeightRole::kVector);
  return AddNode(linear, module);
}

Value GraphBuilder::RmsNorm(Value x, const std::string& module, double eps, float weight_offset) {
  const int64_t width = WidthOf(graph_, x, module);
  const WeightId weight = AddWeight(module + ".weight", {width}, WeightRole::kVector);
  return AddNode(op::RmsNorm{x, weight, static_cast<float>(eps), width, weight_offset}, module);
}

Value GraphBuilder::HeadRmsNorm(Value x, const std::string& module, int64_t head_dim, double eps) {
  CheckPositive(module, "head_dim", head_dim);
  const WeightId weight = AddWeight(module + ".weight", {head_dim}, WeightRole::kVector);
  return AddNode(op::RmsNorm{x, weight, static_cast<float>(eps), head_dim}, module);
}

Value GraphBuilder::Rope(Value x, int64_t heads, int64_t head_dim,
                         const RopeParameters& parameters) {
  WidthOf(graph_, x, "rope");  // x is there
  // Every node has one output, so values and nodes have the same numbers.
  const std::string name = graph_.nodes_[static_cast<size_t>(x.id)].name + ".rope";
  const std::string problem = FindRopeProblem(parameters, head_dim);
  if (!problem.empty()) Refuse(name, problem);
  auto& ropes = graph_.ropes_;
  auto found = std::find(ropes.begin(), ropes.end(), parameters);
  if (found == ropes.end()) found = ropes.insert(ropes.end(), parameters);
  return AddNode(op::Rope{x, heads, head_dim, static_cast<int32_t>(found - ropes.begin())}, name);
}

Value GraphBuilder::Attention(Value q, Value k, Value v, const AttentionShape& shape,
                              const std::string& name) {
  CheckPositive(name, "heads", shape.heads);
  CheckPositive(name, "kv_heads", shape.kv_heads);
  CheckPositive(name, "head_dim", shape.head_dim);
  if (shape.heads % shape.kv_heads != 0) {
    Refuse(name,
           fmt::format("the number of heads, {}, is not a multiple of the number of KV heads, {}",
                       shape.heads, shape.kv_heads));
  }
  if (shape.window < 0) {
    Refuse(name, fmt::format("window: expected 0 or more, found {}", shape.window));
  }
  const double scale =
      shape.scale != 0.0 ? shape.scale : 1.0 / std::sqrt(static_cast<double>(shape.head_dim));
  return AddNode(op::Attention{q, k, v, graph_.kv_layers_++, shape.heads, shape.kv_heads,
                               shape.head_dim, static_cast<float>(scale), shape.window},
                 name);
}

Value GraphBuilder::GatedActivation(Value gate, Value up, op::GatedActivation::Function function,
                                    const std::string& name) {
  return AddNode(op::GatedActivation{gate, up, function}, name);
}

Value GraphBuilder::Add(Value a, Value b, const std::string& name) {
  return AddNode(op::Add{a, b}, name);
}

Value GraphBuilder::SelectRows(Value x) { return AddNode(op::SelectRows{x}, "select_rows"); }

void GraphBuilder::Logits(Value x, const std::string& head_module, bool tied_to_embedding) {
  WeightId head = kNoWeight;
  if (tied_to_embedding) {
    auto& weights = graph_.weights_;
    const auto table = std::find_if(weights.begin(), weights.end(), [](const WeightDecl& weight) {
      return weight.role == WeightRole::kEmbedding;
    });
    if (table == weights.end()) {
      throw Error(ErrorCode::kInternal,
                  fmt::format("graph node {}: there is no embedding to tie it to", head_module));
    }
    table->tied_head = true;
    head = static_cast<WeightId>(table - weights.begin());
  } else {
    head = AddWeight(head_module + ".weight", {graph_.vocab_size_, WidthOf(graph_, x, head_module)},
                     WeightRole::kHead);
  }
  graph_.logits_ = AddNode(op::Linear{x, head}, head_module);
}

void GraphBuilder::MarkHiddenState(Value value) { graph_.hidden_states_.push_back(value); }

void GraphBuilder::SetContextLength(int64_t tokens) {
  CheckPositive("max_position_embeddings", "context length", tokens);
  graph_.context_length_ = tokens;
}

void GraphBuilder::IgnoreSuffix(std::string_view suffix) {
  graph_.ignorable_suffixes_.emplace_back(suffix);
}

Graph GraphBuilder::Finish() {
  const auto fail = [](const char* problem) {
    throw Error(ErrorCode::kInternal, std::string("graph: ") + problem);
  };
  if (graph_.logits_.id < 0) fail("it has no logits");
  if (graph_.info(graph_.logits_).rows != Rows::kSelected)
    fail("its logits are not of selected rows");
  if (graph_.context_length_ < 1) fail("it has no context length");
  return std::exchange(graph_, Graph());
}

Value GraphBuilder::AddNode(Op op, std::string name) {
  const ValueInfo info = InferOutput(op, graph_, name);
  const Value output{static_cast<int32_t>(graph_.values_.size())};
  graph_.values_.push_back(info);
  graph_.nodes_.push_back({std::move(op), output, std::move(name)});
  return output;
}

WeightId GraphBuilder::AddWeight(std::string name, Shape shape, WeightRole role) {
  const auto same_name = [&](const WeightDecl& weight) { return weight.name == name; };
  if (std::any_of(graph_.weights_.begin(), graph_.weights_.end(), same_name)) {
    throw Error(ErrorCode::kInternal, fmt::format("graph: the weight {} is declared twice", name));
  }
  // Bytes are counted in 64 bits: 2^56 elements leave room for any element type and for sums.
  const std::optional<int64_t> elements = ElementCount(shape);
  if (!elements || *elements > int64_t{1} << 56) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{}: the shape {} is too large", name, ToString(shape)));
  }
  graph_.weights_.push_back({std::move(name), std::move(shape), role});
  return static_cast<WeightId>(graph_.weights_.size() - 1);
}

}  // namespace octavo
