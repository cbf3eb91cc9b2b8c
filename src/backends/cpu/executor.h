// Runs a plan on batches.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "backends/cpu/batch_rows.h"
#include "backends/cpu/kv_cache.h"
#include "backends/cpu/plan.h"
#include "backends/cpu/weight_store.h"
#include "base/thread_pool.h"
#include "kernels/kernel_table.h"
#include "tensor/buffer.h"

namespace octavo::cpu {

class Executor {
 public:
  // All of these outlive the executor.
  Executor(const Plan& plan, const WeightStore& weights, KvCache& cache, const KernelTable& kernels,
           ActivationMode mode, ThreadPool& pool);

  // Chooses the kernels, once the formats of all weights are known.
  void Bind();
  uint64_t WorkspaceBytes(int64_t tokens, int64_t selected) const;
  std::span<const float> Run(const ForwardBatch& batch);

  std::vector<std::string> KernelNames() const;  // each once
  uint64_t StreamedBytes() const;                // of weights in a decode step

 private:
  friend class StepRunner;

  // A linear output with its kernel.
  struct BoundOutput {
    const LinearKernel* kernel = nullptr;
    size_t prepared = 0;  // index into BoundLinear::prepared, where the kernel prepares
    LinearArgs args;      // all but x and y
  };
  // The forms of x that the outputs of a linear region read, each kernel's once.
  struct BoundLinear {
    std::vector<BoundOutput> outputs;
    std::vector<const LinearKernel*> prepared;
  };

  const LinearKernel& KernelFor(WeightId weight) const;
  // Where form `index` of x begins in the memory for prepared rows; index == size() gives the end.
  static int64_t PreparedOffset(const std::vector<const LinearKernel*>& kernels, size_t index,
                                int64_t m, int64_t k);
  int64_t PreparedBytes(int64_t tokens, int64_t selected) const;
  void MakeRoom();  // for the batch in batch_

  const Plan& plan_;
  std::vector<Step> steps_;  // of the plan, without preparations that no kernel needs
  const WeightStore& weights_;
  KvCache& cache_;
  const KernelTable& kernels_;
  ActivationMode mode_;
  ThreadPool& pool_;
  std::vector<BoundLinear> linears_;
  BatchRows batch_;
  std::vector<Buffer> slots_;
  Buffer prepared_;
  Buffer scratch_;
  int64_t scratch_floats_ = 0;  // of attention, for each thread
  int64_t room_tokens_ = 0;     // what the buffers are large enough for
  int64_t room_selected_ = 0;
};

}  // namespace octavo::cpu
