// The weights of the CPU backend: matrices packed for the kernels, vectors as float32.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "kernels/kernel_table.h"
#include "tensor/buffer.h"
#include "tensor/weight_format.h"
#include "tensor/weight_panel.h"

namespace octavo::cpu {

class WeightStore {
 public:
  WeightStore(const Graph& graph, const KernelTable& kernels);

  void Begin(WeightId id, const WeightFormat& format);
  void Put(WeightId id, const WeightPanel& panel);  // any thread
  void CheckComplete() const;                       // kInternal when rows are missing

  bool announced(WeightId id) const { return weight(id).announced; }
  const WeightFormat& format(WeightId id) const { return weight(id).format; }
  // Fills in weights, scales, row_sums, block, n and k of `args`.
  void Describe(WeightId id, LinearArgs& args) const;
  // A vector, padded with zeros to a multiple of 16; null for kNoWeight.
  const float* Vector(WeightId id) const;
  // Row `row` of an embedding as float32 [width].
  void EmbeddingRow(WeightId id, int64_t row, float* destination) const;

  uint64_t BytesOf(WeightId id) const;  // padding included
  uint64_t total_bytes() const;

 private:
  struct Weight {
    std::string name;
    int64_t rows = 0;     // n; of a vector 1
    int64_t columns = 0;  // k; of a vector its length
    WeightRole role = WeightRole::kLinear;
    bool tied_head = false;
    bool announced = false;
    WeightFormat format;
    bool row_major =
        false;  // an embedding that is only looked up: a packed row is spread over many lines
    Buffer values;
    Buffer scales;    // as LinearArgs has them
    Buffer row_sums;  // [n padded], s8 per channel only
    std::atomic<int64_t> rows_arrived{0};
  };

  const Weight& weight(WeightId id) const { return weights_[static_cast<size_t>(id)]; }
  void PutVector(Weight& weight, const WeightPanel& panel);
  void PutMatrix(Weight& weight, const WeightPanel& panel);

  std::vector<Weight> weights_;
  const KernelTable& kernels_;
};

}  // namespace octavo::cpu
