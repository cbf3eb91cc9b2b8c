#include "engine/loaded_model.h"

#include <fmt/format.h>
#include <octavo/error.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/log.h"
#include "engine/plan_summary.h"
#include "models/registry.h"

namespace octavo {

ComputeType ParseComputeType(const std::string& dtype) {
  if (dtype == "auto" || dtype == "bfloat16") return ComputeType::kBFloat16;
  if (dtype == "float32") return ComputeType::kFloat32;
  if (dtype == "float16") return ComputeType::kFloat16;
  throw Error(
      ErrorCode::kInvalidArgument,
      fmt::format("dtype \"{}\" is not known; expected auto, float32, bfloat16 or float16", dtype));
}

ModelPlan PlanModel(const ModelOptions& options) {
  MakeScheme(options.load.quantization);  // a misspelt scheme is the first thing said
  Checkpoint checkpoint = Checkpoint::Open(ResolveModelDirectory(options.model, options.revision));
  Graph graph = BuildModel(checkpoint.config());
  LoadPlan plan = MakeLoadPlan(checkpoint, graph, options.load);
  return {std::move(checkpoint), std::move(graph), std::move(plan)};
}

LoadedModel::LoadedModel(const ModelOptions& options, const LoadProgressFunction& on_progress,
                         const PlanFunction& on_plan) {
  const auto start = std::chrono::steady_clock::now();
  const ComputeType compute = ParseComputeType(options.dtype);
  ModelPlan model = PlanModel(options);
  for (const std::string& warning : model.plan.warnings) LogWarning(warning);
  LogInfo(SummarizePlan(model));
  if (on_plan) on_plan(model);
  pool_ = std::make_unique<ThreadPool>(options.threads);
  executable_ =
      CompileGraph(options.backend, model.graph, {.compute = compute, .pool = pool_.get()});
  LoadWeights(model.plan, model.graph, *executable_, *pool_, on_progress);
  directory_ = model.checkpoint.directory();
  config_ = model.checkpoint.config();
  graph_ = std::move(model.graph);
  load_seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

int64_t LoadedModel::RowsWithinWorkspace(int64_t rows, int64_t selected) const {
  while (rows > 1 &&
         executable_->WorkspaceBytes(rows, std::min(selected, rows)) > kWorkspaceBytes) {
    rows = (rows + 1) / 2;
  }
  return rows;
}

}  // namespace octavo
