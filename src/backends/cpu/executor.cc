#include "backends/cpu/executor.h"

#include <algorithm>
#include <set>
#include <utility>

#include "backends/cpu/step_runner.h"
#include "kernels/packed_weight.h"

namespace octavo::cpu {
namespace {

constexpr int64_t kAlignment = 64;
constexpr int64_t kFloat = sizeof(float);

int64_t Aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

int64_t SlotBytes(const Slot& slot, int64_t tokens, int64_t selected) {
  const int64_t rows = slot.rows == Rows::kTokens ? tokens : selected;
  return rows * slot.width * kFloat;
}

// Replaces a buffer that is too small; the old one goes first.
void Grow(Buffer& buffer, int64_t bytes) {
  if (static_cast<int64_t>(buffer.bytes()) >= bytes) return;
  buffer = Buffer();
  buffer = Buffer(static_cast<size_t>(bytes));
}

// Floats of attention's scratch memory for each thread.
int64_t ScratchFloats(const Plan& plan, const KernelTable& kernels) {
  int64_t most = 0;
  for (const Step& step : plan.steps) {
    if (const auto* attention = std::get_if<AttentionRegion>(&step)) {
      const int64_t group = attention->heads / attention->kv_heads;
      most = std::max(most, kernels.attention_scratch_floats(group, attention->head_dim));
    }
  }
  return Aligned(most * kFloat) / kFloat;
}

}  // namespace

Executor::Executor(const Plan& plan, const WeightStore& weights, KvCache& cache,
                   const KernelTable& kernels, ActivationMode mode, ThreadPool& pool)
    : plan_(plan),
      steps_(plan.steps),
      weights_(weights),
      cache_(cache),
      kernels_(kernels),
      mode_(mode),
      pool_(pool),
      batch_(plan_),
      slots_(plan_.slots.size()),
      scratch_floats_(ScratchFloats(plan_, kernels_)) {}

const LinearKernel& Executor::KernelFor(WeightId weight) const {
  const LinearFormat format = LinearFormatOf(weights_.format(weight));
  return kernels_.linear[static_cast<size_t>(format)][static_cast<size_t>(mode_)];
}

void Executor::Bind() {
  linears_.assign(plan_.linears.size(), {});
  for (size_t i = 0; i < linears_.size(); ++i) {
    BoundLinear& bound = linears_[i];
    for (const LinearOutput& output : plan_.linears[i].outputs) {
      BoundOutput& target = bound.outputs.emplace_back();
      target.kernel = &KernelFor(output.weight);
      weights_.Describe(output.weight, target.args);
      target.args.bias = weights_.Vector(output.bias);
      target.args.y_stride = output.n;
      if (target.kernel->prepare == nullptr) continue;
      const auto found = std::find(bound.prepared.begin(), bound.prepared.end(), target.kernel);
      target.prepared = static_cast<size_t>(found - bound.prepared.begin());
      if (found == bound.prepared.end()) bound.prepared.push_back(target.kernel);
    }
  }
  steps_ = plan_.steps;
  RemovePreparations(steps_, [&](int32_t linear) {
    return !linears_[static_cast<size_t>(linear)].prepared.empty();
  });
}

int64_t Executor::PreparedOffset(const std::vector<const LinearKernel*>& kernels, size_t index,
                                 int64_t m, int64_t k) {
  int64_t offset = 0;
  for (size_t i = 0; i < index; ++i) offset += Aligned(kernels[i]->prepared_bytes(m, k));
  return offset;
}

int64_t Executor::PreparedBytes(int64_t tokens, int64_t selected) const {
  int64_t most = 0;
  for (const LinearRegion& region : plan_.linears) {
    std::vector<const LinearKernel*> kernels;
    for (const LinearOutput& output : region.outputs) {
      if (!weights_.announced(output.weight)) continue;
      const LinearKernel* kernel = &KernelFor(output.weight);
      const bool known = std::find(kernels.begin(), kernels.end(), kernel) != kernels.end();
      if (kernel->prepare != nullptr && !known) kernels.push_back(kernel);
    }
    const int64_t m = region.rows == Rows::kTokens ? tokens : selected;
    most = std::max(most, PreparedOffset(kernels, kernels.size(), m, region.k));
  }
  return most;
}

uint64_t Executor::WorkspaceBytes(int64_t tokens, int64_t selected) const {
  int64_t bytes = PreparedBytes(tokens, selected);
  for (const Slot& slot : plan_.slots) bytes += SlotBytes(slot, tokens, selected);
  bytes += scratch_floats_ * kFloat * pool_.size();
  return static_cast<uint64_t>(bytes);
}

void Executor::MakeRoom() {
  const int64_t tokens = std::max(batch_.tokens(), room_tokens_);
  const int64_t selected = std::max(batch_.selected(), room_selected_);
  if (tokens == room_tokens_ && selected == room_selected_) return;
  room_tokens_ = room_selected_ = 0;  // should memory run out half-way
  for (size_t i = 0; i < slots_.size(); ++i) {
    Grow(slots_[i], SlotBytes(plan_.slots[i], tokens, selected));
  }
  Grow(prepared_, PreparedBytes(tokens, selected));
  Grow(scratch_, scratch_floats_ * kFloat * pool_.size());
  room_tokens_ = tokens;
  room_selected_ = selected;
}

std::span<const float> Executor::Run(const ForwardBatch& batch) {
  batch_.Set(batch, cache_.blocks());
  if (batch_.tokens() == 0) return {};
  MakeRoom();
  StepRunner runner(*this);
  for (const Step& step : steps_) std::visit(runner, step);
  if (plan_.logits < 0) return {};
  const Buffer& logits = slots_[static_cast<size_t>(plan_.logits)];
  return {logits.as<float>(), static_cast<size_t>(batch_.selected() * plan_.vocab_size)};
}

uint64_t Executor::StreamedBytes() const {
  std::set<WeightId> read;  // each once; of an embedding that is no head, a single row
  for (const LinearRegion& region : plan_.linears) {
    for (const LinearOutput& output : region.outputs) read.insert({output.weight, output.bias});
  }
  for (const Step& step : plan_.steps) {
    const auto* region = std::get_if<RowRegion>(&step);
    for (size_t i = 0; region != nullptr && i < region->ops.size(); ++i) {
      if (const auto* norm = std::get_if<NormRows>(&region->ops[i])) read.insert(norm->weight);
    }
  }
  read.erase(kNoWeight);
  uint64_t bytes = 0;
  for (const WeightId id : read) bytes += weights_.BytesOf(id);
  return bytes;
}

std::vector<std::string> Executor::KernelNames() const {
  std::vector<std::string> names;
  for (const BoundLinear& linear : linears_) {
    for (const BoundOutput& output : linear.outputs) {
      if (std::find(names.begin(), names.end(), output.kernel->name) == names.end()) {
        names.push_back(output.kernel->name);
      }
    }
  }
  return names;
}

}  // namespace octavo::cpu
