// What loading will read and keep, tensor by tensor, known from headers alone: the source of every
// memory number that Octavo prints, and what `octavo inspect --plan` shows.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "graph/graph.h"
#include "quant/scheme.h"

namespace octavo {

struct LoadOptions {
  std::string quantization = "none";
  bool quantize_lm_head = false;
  std::vector<std::string> skip_modules{};  // exact names or "re:" patterns, see ModuleFilter
};

struct PlannedWeight {
  WeightId id = kNoWeight;
  CheckpointTensor source;
  LinearRecipe recipe;
  WeightFormat format;  // what arrives at the backend
  uint64_t bytes_read = 0;
  uint64_t bytes_kept = 0;  // values and scales
  std::string reason;       // "int8", "norm", "embedding", "--skip-modules re:.*down.*", ...
};

struct LoadPlan {
  std::vector<PlannedWeight> weights;  // in file order
  std::vector<std::string> warnings;   // unexpected tensors (one line names them), tied heads ...
  uint64_t bytes_read = 0;
  uint64_t bytes_kept = 0;
  std::string scheme;  // "int8" or "none"
};

// Matches every weight of the graph with a tensor of the checkpoint and chooses its recipe. Throws
// kNotFound for missing tensors, kDataLoss for a wrong shape (found and expected by the config),
// kInvalidArgument for a dtype that cannot be a weight, an unknown scheme, or a skip pattern that
// matches no weight, kUnimplemented for a pre-quantized checkpoint.
LoadPlan MakeLoadPlan(const Checkpoint& checkpoint, const Graph& graph, const LoadOptions& options);

// A table for people: tensor, shape, stored, becomes, bytes, reason; and the totals.
std::string FormatPlan(const LoadPlan& plan, const Graph& graph);

}  // namespace octavo
