// Graph -> Plan, in two passes. The first puts the nodes into steps, with value ids where slots
// belong; the second follows the life of each value and gives it a slot that is free.
#include <algorithm>
#include <initializer_list>
#include <limits>
#include <map>
#include <utility>

#include "backends/cpu/plan.h"

namespace octavo::cpu {
namespace {

Activation ActivationOf(op::GatedActivation::Function function) {
  switch (function) {
    case op::GatedActivation::Function::kSilu:
      return Activation::kSilu;
    case op::GatedActivation::Function::kGelu:
      return Activation::kGelu;
    case op::GatedActivation::Function::kGeluTanh:
      return Activation::kGeluTanh;
    case op::GatedActivation::Function::kRelu:
      return Activation::kRelu;
  }
  return Activation::kSilu;
}

// The first pass.
class StepBuilder {
 public:
  explicit StepBuilder(const Graph& graph) : graph_(graph), done_(graph.nodes().size(), false) {
    plan_.kv_layers.resize(static_cast<size_t>(graph.kv_layers()));
    plan_.ropes = graph.ropes();
    plan_.logits = graph.logits().id;
    plan_.vocab_size = graph.vocab_size();
  }

  Plan Build() {
    for (size_t i = 0; i < graph_.nodes().size(); ++i) {
      if (done_[i]) continue;
      index_ = i;
      output_ = graph_.nodes()[i].output;
      std::visit(*this, graph_.nodes()[i].op);
      NoteCaptures(output_);
    }
    CloseRegion();
    return std::move(plan_);
  }

  void operator()(const op::Embedding& op) { Append(EmbedRows{op.table, output_.id}); }
  void operator()(const op::RmsNorm& op) {
    Append(NormRows{op.x.id, output_.id, op.weight, op.eps, op.group, op.weight_offset});
  }
  void operator()(const op::Rope& op) {
    Append(RopeRows{op.x.id, output_.id, op.heads, op.head_dim, op.rope});
  }
  void operator()(const op::GatedActivation& op) {
    Append(GateRows{op.gate.id, op.up.id, output_.id, ActivationOf(op.function)});
  }
  void operator()(const op::Add& op) { Append(AddRows{op.a.id, op.b.id, output_.id}); }
  void operator()(const op::SelectRows& op) { Append(SelectRows{op.x.id, output_.id}); }

  void operator()(const op::Attention& op) {
    plan_.kv_layers[static_cast<size_t>(op.layer)] = {op.kv_heads, op.head_dim};
    Append(StoreKvRows{op.k.id, op.v.id, op.layer});
    CloseRegion();
    plan_.steps.push_back(AttentionRegion{op.q.id, output_.id, op.layer, op.heads, op.kv_heads,
                                          op.head_dim, op.scale, op.window});
  }

  // All linears of the same input at once: they need nothing else.
  void operator()(const op::Linear& first) {
    LinearRegion region{graph_.info(first.x).rows,
                        first.x.id,
                        graph_.info(first.x).width,
                        {},
                        graph_.nodes()[index_].name};
    std::vector<Value> outputs;
    for (size_t i = index_; i < graph_.nodes().size(); ++i) {
      const auto* op = std::get_if<op::Linear>(&graph_.nodes()[i].op);
      if (op == nullptr || op->x != first.x) continue;
      const Value output = graph_.nodes()[i].output;
      region.outputs.push_back({op->weight, op->bias, output.id, graph_.info(output).width});
      outputs.push_back(output);
      done_[i] = true;
    }
    const int32_t linear = static_cast<int32_t>(plan_.linears.size());
    AppendTo(region.rows, PrepareRows{linear});
    CloseRegion();
    plan_.linears.push_back(std::move(region));
    plan_.steps.push_back(RunLinear{linear});
    for (const Value output : outputs) {
      if (output != output_) NoteCaptures(output);
    }
  }

 private:
  void Append(RowOp op) { AppendTo(graph_.info(output_).rows, op); }
  void AppendTo(Rows rows, RowOp op) {
    if (region_.rows != rows) CloseRegion();
    region_.rows = rows;
    region_.ops.push_back(op);
  }
  // Hidden states are handed out when the region that makes them is complete, so that they do not
  // split it.
  void NoteCaptures(Value value) {
    const std::vector<Value>& states = graph_.hidden_states();
    for (size_t i = 0; i < states.size(); ++i) {
      if (states[i] == value) captures_.push_back({static_cast<int64_t>(i), value.id});
    }
    if (region_.ops.empty()) FlushCaptures();
  }
  void FlushCaptures() {
    for (const Capture& capture : captures_) plan_.steps.push_back(capture);
    captures_.clear();
  }
  void CloseRegion() {
    if (!region_.ops.empty()) plan_.steps.push_back(std::move(region_));
    region_ = {};
    FlushCaptures();
  }

  const Graph& graph_;
  Plan plan_;
  std::vector<bool> done_;
  size_t index_ = 0;  // of the node at hand
  Value output_;
  RowRegion region_ = {};
  std::vector<Capture> captures_;
};

// Calls Read(slot&) and Write(slot&) of the visitor for the operands of each operation and End()
// after them. An End() between reading and writing lets an output take the place of an input that
// nobody reads again.
template <typename Visitor>
class OperandWalk {
 public:
  OperandWalk(Plan& plan, Visitor& visitor) : plan_(plan), v_(visitor) {}

  void Walk() {
    for (Step& step : plan_.steps) std::visit(*this, step);
  }

  void operator()(RowRegion& region) {
    for (RowOp& op : region.ops) std::visit(*this, op);
  }
  void operator()(RunLinear& step) {
    LinearRegion& linear = plan_.linears[static_cast<size_t>(step.linear)];
    for (LinearOutput& output : linear.outputs) v_.Write(output.out);
    v_.Read(linear.x);
    v_.End();
  }
  void operator()(AttentionRegion& op) {
    v_.Write(op.out);
    v_.Read(op.q);
    v_.End();
  }
  void operator()(Capture& op) {
    v_.Read(op.slot);
    v_.End();
  }
  // Rows: inputs end before the output begins.
  void operator()(EmbedRows& op) { Row({}, &op.out); }
  void operator()(NormRows& op) { Row({&op.x}, &op.out); }
  void operator()(RopeRows& op) { Row({&op.x}, &op.out); }
  void operator()(StoreKvRows& op) { Row({&op.k, &op.v}, nullptr); }
  void operator()(GateRows& op) { Row({&op.up, &op.gate}, &op.out); }
  void operator()(AddRows& op) { Row({&op.b, &op.a}, &op.out); }
  void operator()(SelectRows& op) { Row({&op.x}, &op.out); }
  void operator()(PrepareRows&) {}  // its input is that of the linear region that follows

 private:
  void Row(std::initializer_list<SlotId*> inputs, SlotId* output) {
    for (SlotId* input : inputs) v_.Read(*input);
    v_.End();
    if (output != nullptr) {
      v_.Write(*output);
      v_.End();
    }
  }

  Plan& plan_;
  Visitor& v_;
};

// Numbers the operations and notes where each value is read for the last time.
struct LastReads {
  explicit LastReads(size_t values) : last(values, -1) {}
  void Read(SlotId& value) { last[static_cast<size_t>(value)] = at; }
  void Write(SlotId&) {}
  void End() { ++at; }
  std::vector<int64_t> last;
  int64_t at = 0;
};

// Replaces value ids by slots. Only values of the same width share a slot: with other widths, row i
// of one would lie over another row of the other, which a second thread may still have to read.
class SlotAssigner {
 public:
  SlotAssigner(const Graph& graph, Plan& plan, std::vector<int64_t> last)
      : graph_(graph), plan_(plan), last_(std::move(last)), slot_of_(last_.size(), -1) {}

  void Read(SlotId& value) {
    const size_t id = static_cast<size_t>(value);
    value = slot_of_[id];
    if (last_[id] == at_) ending_.push_back(value);
  }
  void Write(SlotId& value) {
    const size_t id = static_cast<size_t>(value);
    const ValueInfo& info = graph_.values()[id];
    std::vector<SlotId>& free = free_[{info.rows, info.width}];
    if (free.empty()) {
      free.push_back(static_cast<SlotId>(plan_.slots.size()));
      plan_.slots.push_back({info.rows, info.width});
    }
    value = free.back();
    free.pop_back();
    slot_of_[id] = value;
    if (last_[id] < 0) ending_.push_back(value);  // nobody reads it
  }
  void End() {
    for (const SlotId slot : ending_) {
      const Slot& shape = plan_.slots[static_cast<size_t>(slot)];
      std::vector<SlotId>& free = free_[{shape.rows, shape.width}];
      // An operation may read the same value twice.
      if (std::find(free.begin(), free.end(), slot) == free.end()) free.push_back(slot);
    }
    ending_.clear();
    ++at_;
  }
  SlotId slot_of(int32_t value) const { return slot_of_[static_cast<size_t>(value)]; }

 private:
  const Graph& graph_;
  Plan& plan_;
  std::vector<int64_t> last_;
  std::vector<SlotId> slot_of_;
  std::map<std::pair<Rows, int64_t>, std::vector<SlotId>> free_;
  std::vector<SlotId> ending_;
  int64_t at_ = 0;
};

}  // namespace

Plan MakePlan(const Graph& graph) {
  Plan plan = StepBuilder(graph).Build();
  LastReads reads(graph.values().size());
  OperandWalk(plan, reads).Walk();
  if (plan.logits >= 0) {
    reads.last[static_cast<size_t>(plan.logits)] = std::numeric_limits<int64_t>::max();
  }
  SlotAssigner slots(graph, plan, std::move(reads.last));
  OperandWalk(plan, slots).Walk();
  if (plan.logits >= 0) plan.logits = slots.slot_of(plan.logits);
  return plan;
}

}  // namespace octavo::cpu
