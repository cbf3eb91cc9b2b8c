#include "backends/cpu/cpu_executable.h"

#include <octavo/error.h>

#include "backends/cpu/executor.h"
#include "backends/cpu/kv_cache.h"
#include "backends/cpu/plan.h"
#include "backends/cpu/weight_store.h"
#include "kernels/dispatch.h"

namespace octavo {
namespace {

DType KvType(ComputeType compute) {
  switch (compute) {
    case ComputeType::kFloat32:
      return DType::kF32;
    case ComputeType::kBFloat16:
      return DType::kBf16;
    case ComputeType::kFloat16:
      return DType::kF16;
  }
  return DType::kF32;
}

ActivationMode ModeOf(ComputeType compute) {
  return compute == ComputeType::kFloat32 ? ActivationMode::kF32 : ActivationMode::k16Bit;
}

ThreadPool& PoolOf(const CompileOptions& options) {
  if (options.pool == nullptr) {
    throw Error(ErrorCode::kInternal, "the cpu backend needs a thread pool");
  }
  return *options.pool;
}

class CpuExecutable final : public Executable {
 public:
  CpuExecutable(const Graph& graph, const CompileOptions& options, const KernelTable& kernels)
      : kernels_(kernels),
        plan_(cpu::MakePlan(graph)),
        weights_(graph, kernels_),
        cache_(plan_.kv_layers, KvType(options.compute), kernels_),
        executor_(plan_, weights_, cache_, kernels_, ModeOf(options.compute), PoolOf(options)) {}

  void BeginWeight(WeightId id, const WeightFormat& format) override {
    weights_.Begin(id, format);
    ready_ = false;
  }
  void PutPanel(WeightId id, const WeightPanel& panel) override { weights_.Put(id, panel); }
  void EndWeights() override {
    weights_.CheckComplete();
    executor_.Bind();
    ready_ = true;
  }

  void AllocateKvCache(int64_t blocks) override { cache_.Allocate(blocks); }
  uint64_t KvBytesPerBlock() const override { return cache_.bytes_per_block(); }
  uint64_t WorkspaceBytes(int64_t tokens, int64_t selected) const override {
    return executor_.WorkspaceBytes(tokens, selected);
  }
  std::span<const float> Run(const ForwardBatch& batch) override {
    if (!ready_) throw Error(ErrorCode::kInternal, "a forward pass before EndWeights");
    return executor_.Run(batch);
  }

  ExecutableInfo Info() const override {
    ExecutableInfo info;
    info.weight_bytes = weights_.total_bytes();
    info.streamed_bytes = executor_.StreamedBytes();
    info.isa = kernels_.isa;
    info.kernels = executor_.KernelNames();
    return info;
  }

 private:
  KernelTable kernels_;
  cpu::Plan plan_;
  cpu::WeightStore weights_;
  cpu::KvCache cache_;
  cpu::Executor executor_;
  bool ready_ = false;
};

}  // namespace

std::unique_ptr<Executable> MakeCpuExecutable(const Graph& graph, const CompileOptions& options) {
  return MakeCpuExecutable(graph, options, HostKernels());
}

std::unique_ptr<Executable> MakeCpuExecutable(const Graph& graph, const CompileOptions& options,
                                              const KernelTable& kernels) {
  return std::make_unique<CpuExecutable>(graph, options, kernels);
}

}  // namespace octavo
