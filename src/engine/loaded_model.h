// A model in memory, ready for forward batches: checkpoint opened, graph built, weights quantized
// into a backend. Knows nothing of text.
#pragma once

#include <memory>
#include <string>

#include "backends/backend.h"
#include "base/thread_pool.h"
#include "checkpoint/checkpoint.h"
#include "loader/load_plan.h"
#include "loader/loader.h"

namespace octavo {

struct ModelOptions {
  std::string model;  // a directory, or org/name in the Hugging Face cache
  std::string revision = "main";
  LoadOptions load;
  std::string backend = "cpu";
  std::string dtype = "auto";  // auto, float32, bfloat16, float16
  int threads = 0;             // 0: one per usable CPU
};

// What --dtype says. Throws kInvalidArgument listing the names.
ComputeType ParseComputeType(const std::string& dtype);

// A model that has been looked at but not loaded: headers only.
struct ModelPlan {
  Checkpoint checkpoint;
  Graph graph;
  LoadPlan plan;
};
ModelPlan PlanModel(const ModelOptions& options);

// Working memory of a forward batch: what is left of the promised 256 MiB after program, tokenizer
// and allocator (docs/memory.md).
inline constexpr uint64_t kWorkspaceBytes = uint64_t{128} << 20;

class LoadedModel {
 public:
  // `on_plan` is called once between planning and reading.
  using PlanFunction = std::function<void(const ModelPlan&)>;
  explicit LoadedModel(const ModelOptions& options, const LoadProgressFunction& on_progress = {},
                       const PlanFunction& on_plan = {});

  const std::string& directory() const { return directory_; }
  const Graph& graph() const { return graph_; }
  const HfConfig& config() const { return config_; }
  Executable& executable() { return *executable_; }
  const Executable& executable() const { return *executable_; }
  ThreadPool& pool() { return *pool_; }
  // `rows`, halved until a forward batch of that many, with `selected` of them for output (at most
  // all), needs no more than kWorkspaceBytes; at least 1.
  int64_t RowsWithinWorkspace(int64_t rows, int64_t selected) const;
  double load_seconds() const { return load_seconds_; }  // from opening to the last weight packed

 private:
  std::string directory_;
  HfConfig config_;
  Graph graph_;
  std::unique_ptr<ThreadPool> pool_;
  std::unique_ptr<Executable> executable_;
  double load_seconds_ = 0;
};

}  // namespace octavo
