// The steps of a plan on the batch that the executor holds. Parallel regions do not throw:
// everything that can fail has been checked before.
#pragma once

#include <cstdint>

#include "backends/cpu/executor.h"
#include "backends/cpu/plan.h"

namespace octavo::cpu {

class StepRunner {
 public:
  explicit StepRunner(Executor& executor) : e_(executor) {}

  void operator()(const RowRegion& region);
  void operator()(const RunLinear& step);
  void operator()(const AttentionRegion& region);
  void operator()(const Capture& capture);

 private:
  float* Row(SlotId slot, int64_t row) const noexcept;
  int64_t Width(SlotId slot) const noexcept;
  void RunQueryBlock(const AttentionRegion& region, const BatchRows::QueryBlock& block,
                     int64_t kv_head, float* scratch) const noexcept;

  // Each for rows [begin, end).
  void Do(const EmbedRows& op, int64_t begin, int64_t end) const noexcept;
  void Do(const NormRows& op, int64_t begin, int64_t end) const noexcept;
  void Do(const RopeRows& op, int64_t begin, int64_t end) const noexcept;
  void Do(const StoreKvRows& op, int64_t begin, int64_t end) const noexcept;
  void Do(const GateRows& op, int64_t begin, int64_t end) const noexcept;
  void Do(const AddRows& op, int64_t begin, int64_t end) const noexcept;
  void Do(const SelectRows& op, int64_t begin, int64_t end) const noexcept;
  void Do(const PrepareRows& op, int64_t begin, int64_t end) const noexcept;

  Executor& e_;
};

}  // namespace octavo::cpu
