#include "graph/graph.h"

#include <algorithm>

namespace octavo {
namespace {

struct InputsOf {
  std::vector<Value> operator()(const op::Embedding&) const { return {}; }
  std::vector<Value> operator()(const op::Linear& op) const { return {op.x}; }
  std::vector<Value> operator()(const op::RmsNorm& op) const { return {op.x}; }
  std::vector<Value> operator()(const op::Rope& op) const { return {op.x}; }
  std::vector<Value> operator()(const op::Attention& op) const { return {op.q, op.k, op.v}; }
  std::vector<Value> operator()(const op::GatedActivation& op) const { return {op.gate, op.up}; }
  std::vector<Value> operator()(const op::Add& op) const { return {op.a, op.b}; }
  std::vector<Value> operator()(const op::SelectRows& op) const { return {op.x}; }
};

}  // namespace

std::vector<Value> Inputs(const Op& op) { return std::visit(InputsOf(), op); }

bool Graph::IsIgnorable(std::string_view tensor_name) const {
  return std::any_of(ignorable_suffixes_.begin(), ignorable_suffixes_.end(),
                     [&](const std::string& suffix) { return tensor_name.ends_with(suffix); });
}

}  // namespace octavo
