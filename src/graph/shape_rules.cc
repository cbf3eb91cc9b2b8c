#include "graph/shape_rules.h"

#include <fmt/format.h>
#include <octavo/error.h>

namespace octavo {
namespace {

const char* Name(Rows rows) { return rows == Rows::kTokens ? "tokens" : "selected"; }

// One overload per op. Adding an op without a rule does not compile.
class ShapeRule {
 public:
  ShapeRule(const Graph& graph, const std::string& node) : graph_(graph), node_(node) {}

  ValueInfo operator()(const op::Embedding& op) const {
    const Shape& table = WeightShape(op.table, 2);  // [vocab, width]
    return {Rows::kTokens, table[1]};
  }

  ValueInfo operator()(const op::Linear& op) const {
    const ValueInfo& x = Input(op.x);                 // [rows, in]
    const Shape& weight = WeightShape(op.weight, 2);  // [out, in]
    Expect("in_features", weight[1], x.width);
    if (op.bias != kNoWeight) Expect("bias", weight[0], WeightShape(op.bias, 1)[0]);
    return {x.rows, weight[0]};
  }

  ValueInfo operator()(const op::RmsNorm& op) const {
    const ValueInfo& x = Input(op.x);  // [rows, width], width = groups * group
    Expect("weight", op.group, WeightShape(op.weight, 1)[0]);
    if (op.group < 1 || x.width % op.group != 0) {
      Fail(fmt::format("width {} is not a multiple of the group {}", x.width, op.group));
    }
    return x;
  }

  ValueInfo operator()(const op::Rope& op) const {
    const ValueInfo& x = Tokens(op.x);  // [tokens, heads * head_dim]
    Expect("width", op.heads * op.head_dim, x.width);
    if (op.rope < 0 || static_cast<size_t>(op.rope) >= graph_.ropes().size()) {
      Fail(fmt::format("there is no rope {}", op.rope));
    }
    return x;
  }

  ValueInfo operator()(const op::Attention& op) const {
    const ValueInfo& q = Tokens(op.q);  // [tokens, heads * head_dim]
    Expect("width of q", op.heads * op.head_dim, q.width);
    Expect("width of k", op.kv_heads * op.head_dim, Tokens(op.k).width);
    Expect("width of v", op.kv_heads * op.head_dim, Tokens(op.v).width);
    return q;
  }

  ValueInfo operator()(const op::GatedActivation& op) const { return Same(op.gate, op.up); }
  ValueInfo operator()(const op::Add& op) const { return Same(op.a, op.b); }

  ValueInfo operator()(const op::SelectRows& op) const {
    return {Rows::kSelected, Tokens(op.x).width};
  }

 private:
  [[noreturn]] void Fail(const std::string& problem) const {
    throw Error(ErrorCode::kInternal, fmt::format("graph node {}: {}", node_, problem));
  }

  void Expect(const char* what, int64_t expected, int64_t found) const {
    if (expected != found) Fail(fmt::format("{}: expected {}, found {}", what, expected, found));
  }

  const ValueInfo& Input(Value value) const {
    if (value.id < 0 || static_cast<size_t>(value.id) >= graph_.values().size()) {
      Fail(fmt::format("there is no value %{}", value.id));
    }
    return graph_.info(value);
  }

  const ValueInfo& Tokens(Value value) const {
    const ValueInfo& info = Input(value);
    if (info.rows != Rows::kTokens) {
      Fail(fmt::format("%{}: expected rows of tokens, found {}", value.id, Name(info.rows)));
    }
    return info;
  }

  ValueInfo Same(Value a, Value b) const {
    const ValueInfo& first = Input(a);
    const ValueInfo& second = Input(b);
    Expect("width", first.width, second.width);
    if (first.rows != second.rows) {
      Fail(fmt::format("rows: expected {}, found {}", Name(first.rows), Name(second.rows)));
    }
    return first;
  }

  const Shape& WeightShape(WeightId id, size_t rank) const {
    if (id < 0 || static_cast<size_t>(id) >= graph_.weights().size()) {
      Fail(fmt::format("there is no weight {}", id));
    }
    const WeightDecl& weight = graph_.weight(id);
    if (weight.shape.size() != rank) {
      Fail(fmt::format("{}: expected {} dimensions, found {}", weight.name, rank,
                       ToString(weight.shape)));
    }
    return weight.shape;
  }

  const Graph& graph_;
  const std::string& node_;
};

}  // namespace

ValueInfo InferOutput(const Op& op, const Graph& graph, const std::string& node) {
  return std::visit(ShapeRule(graph, node), op);
}

}  // namespace octavo
