// What the CPU backend runs for a graph. Operations whose row depends on the same row of their
// inputs alone are joined into row regions: one parallel region that takes a few rows through all
// of them while they lie in the cache. In a decode step with its single row such a region runs on
// the calling thread, so a layer costs four dispatches of linears and one of attention.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "graph/graph.h"
#include "kernels/kernel_table.h"

namespace octavo::cpu {

// A buffer [rows, width] of floats, used for one value after another of that shape.
using SlotId = int32_t;
struct Slot {
  Rows rows = Rows::kTokens;
  int64_t width = 0;
};

// The operations on rows. `out` may be one of the inputs' slots.
struct EmbedRows {
  WeightId table;
  SlotId out;
};
struct NormRows {
  SlotId x, out;
  WeightId weight;
  float eps;
  int64_t group;
  float weight_offset;
};
struct RopeRows {
  SlotId x, out;
  int64_t heads;
  int64_t head_dim;
  int32_t rope;
};
struct StoreKvRows {
  SlotId k, v;
  int32_t layer;
};
struct GateRows {
  SlotId gate, up, out;
  Activation activation;
};
struct AddRows {
  SlotId a, b, out;
};
struct SelectRows {
  SlotId x, out;
};
// Brings the input of a linear region into the form its kernels read.
struct PrepareRows {
  int32_t linear;  // index into Plan::linears
};
using RowOp = std::variant<EmbedRows, NormRows, RopeRows, StoreKvRows, GateRows, AddRows,
                           SelectRows, PrepareRows>;

struct RowRegion {
  Rows rows;
  std::vector<RowOp> ops;  // in order, for each row
};

// The linears that read the same x: one parallel region over the columns of all of them.
struct LinearOutput {
  WeightId weight;
  WeightId bias;
  SlotId out;
  int64_t n;
};
struct LinearRegion {
  Rows rows;
  SlotId x;
  int64_t k;
  std::vector<LinearOutput> outputs;
  std::string name;  // of the first node
};
struct RunLinear {
  int32_t linear;  // index into Plan::linears
};

struct AttentionRegion {
  SlotId q, out;
  int32_t layer;
  int64_t heads;
  int64_t kv_heads;
  int64_t head_dim;
  float scale;
  int64_t window;
};

// Hands hidden state `index` to the caller, when it asked for them.
struct Capture {
  int64_t index;
  SlotId slot;
};

using Step = std::variant<RowRegion, RunLinear, AttentionRegion, Capture>;

struct KvLayer {
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
};

struct Plan {
  std::vector<Slot> slots;
  std::vector<LinearRegion> linears;
  std::vector<Step> steps;
  std::vector<KvLayer> kv_layers;
  std::vector<RopeParameters> ropes;
  SlotId logits = -1;
  int64_t vocab_size = 0;
};

Plan MakePlan(const Graph& graph);

// Takes out the preparations of linears for which `needed(linear)` is false, and regions left
// empty.
template <typename Needed>
void RemovePreparations(std::vector<Step>& steps, Needed needed) {
  for (Step& step : steps) {
    if (auto* region = std::get_if<RowRegion>(&step)) {
      std::erase_if(region->ops, [&](const RowOp& op) {
        const auto* prepare = std::get_if<PrepareRows>(&op);
        return prepare != nullptr && !needed(prepare->linear);
      });
    }
  }
  std::erase_if(steps, [](const Step& step) {
    const auto* region = std::get_if<RowRegion>(&step);
    return region != nullptr && region->ops.empty();
  });
}

}  // namespace octavo::cpu
