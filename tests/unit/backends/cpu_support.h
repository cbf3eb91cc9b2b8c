// A small decoder with random weights for tests of the CPU backend.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "graph/graph.h"
#include "kernels/kernel_table.h"

namespace octavo::testing {

struct DecoderShape {
  int64_t vocab = 83;
  int64_t hidden = 60;
  int64_t layers = 2;
  int64_t heads = 6;
  int64_t kv_heads = 2;
  int64_t head_dim = 12;
  int64_t intermediate = 100;
  int64_t window = 0;
  bool head_norm = false;
  bool tied = false;
  RopeType rope = RopeType::kDefault;
};

Graph MakeDecoder(const DecoderShape& shape);

// The element of each weight; vectors are f32 where it says s8.
using ElementOf = std::function<DType(const WeightDecl& weight, WeightId id)>;
ElementOf All(DType element);

// Random weights, the same for the same graph and elements, in panels of 16 rows.
void FillWeights(const Graph& graph, const ElementOf& element_of, Executable& executable);

// Sequences whose KV blocks are scattered over the cache.
class Session {
 public:
  Session(Executable& executable, int64_t vocab);

  struct Sequence {
    std::vector<int32_t> tokens;
    int64_t length = 0;  // in the KV cache
    std::vector<int32_t> blocks;
  };
  Sequence NewSequence(int64_t tokens, uint32_t seed);

  // Runs the next `rows[i]` tokens of each sequence; logits of all rows, by sequence.
  std::vector<std::vector<float>> Run(const std::vector<Sequence*>& sequences,
                                      const std::vector<int64_t>& rows);
  // All of a sequence in chunks of `chunk`.
  std::vector<float> RunAlone(Sequence sequence, int64_t chunk);

 private:
  Executable& executable_;
  int64_t vocab_;
  std::vector<int32_t> free_blocks_;
};

}  // namespace octavo::testing
