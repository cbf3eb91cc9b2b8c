#include "backends/cpu/step_runner.h"

#include <algorithm>
#include <cstring>

#include "backends/cpu/linear_tiles.h"

namespace octavo::cpu {
namespace {

// Rows that a task takes through a row region: few enough to stay in the cache from one operation
// to the next, enough that handing out tasks costs nothing beside them.
constexpr int64_t kRegionRows = 8;

}  // namespace

float* StepRunner::Row(SlotId slot, int64_t row) const noexcept {
  return e_.slots_[static_cast<size_t>(slot)].as<float>() + row * Width(slot);
}

int64_t StepRunner::Width(SlotId slot) const noexcept {
  return e_.plan_.slots[static_cast<size_t>(slot)].width;
}

void StepRunner::operator()(const RowRegion& region) {
  const int64_t rows = e_.batch_.rows(region.rows);
  const int64_t tasks = (rows + kRegionRows - 1) / kRegionRows;
  e_.pool_.ParallelFor(tasks, [&](int64_t task, int) noexcept {
    const int64_t begin = task * kRegionRows;
    const int64_t end = std::min(begin + kRegionRows, rows);
    for (const RowOp& op : region.ops) {
      std::visit([&](const auto& rows_op) noexcept { Do(rows_op, begin, end); }, op);
    }
  });
}

void StepRunner::operator()(const RunLinear& step) {
  const LinearRegion& region = e_.plan_.linears[static_cast<size_t>(step.linear)];
  const Executor::BoundLinear& bound = e_.linears_[static_cast<size_t>(step.linear)];
  const int64_t m = e_.batch_.rows(region.rows);
  if (m == 0) return;
  const LinearTiles tiles(region, m, e_.pool_.size());
  e_.pool_.ParallelFor(tiles.count(), [&](int64_t task, int) noexcept {
    tiles.ForEachPart(task, [&](size_t i, int64_t m_begin, int64_t m_end, int64_t n_begin,
                                int64_t n_end) noexcept {
      const Executor::BoundOutput& output = bound.outputs[i];
      LinearArgs args = output.args;
      args.x = Row(region.x, 0);
      if (output.kernel->prepare != nullptr) {
        args.x = e_.prepared_.as<char>() +
                 Executor::PreparedOffset(bound.prepared, output.prepared, m, region.k);
      }
      args.y = Row(region.outputs[i].out, 0);
      output.kernel->run(args, m_begin, m_end, n_begin, n_end);
    });
  });
}

void StepRunner::RunQueryBlock(const AttentionRegion& region, const BatchRows::QueryBlock& block,
                               int64_t kv_head, float* scratch) const noexcept {
  const SequenceRows& sequence = e_.batch_.batch().sequences[static_cast<size_t>(block.sequence)];
  const int64_t first = e_.batch_.first_row(block.sequence);
  AttentionArgs args;
  args.q = Row(region.q, first);      // [rows, heads * head_dim]
  args.out = Row(region.out, first);  // likewise
  args.q_stride = Width(region.q);
  args.out_stride = Width(region.out);
  args.heads = region.heads;
  args.kv_heads = region.kv_heads;
  args.head_dim = region.head_dim;
  args.first_position = sequence.first_position;
  args.window = region.window;
  args.scale = region.scale;
  args.kv = e_.cache_.View(region.layer);
  args.kv.block_table = sequence.block_table.data();
  e_.kernels_.attention(args, block.row_begin, block.row_end, kv_head, scratch);
}

void StepRunner::operator()(const AttentionRegion& region) {
  const auto& blocks = e_.batch_.query_blocks();
  const int64_t tasks = static_cast<int64_t>(blocks.size()) * region.kv_heads;
  e_.pool_.ParallelFor(tasks, [&](int64_t task, int thread) noexcept {
    RunQueryBlock(region, blocks[static_cast<size_t>(task / region.kv_heads)],
                  task % region.kv_heads, e_.scratch_.as<float>() + thread * e_.scratch_floats_);
  });
}

void StepRunner::operator()(const Capture& capture) {
  const auto& callback = e_.batch_.batch().on_hidden_state;
  if (!callback) return;
  const Rows rows = e_.plan_.slots[static_cast<size_t>(capture.slot)].rows;
  callback(capture.index, Row(capture.slot, 0), e_.batch_.rows(rows), Width(capture.slot));
}

void StepRunner::Do(const EmbedRows& op, int64_t begin, int64_t end) const noexcept {
  for (int64_t row = begin; row < end; ++row) {
    e_.weights_.EmbeddingRow(op.table, e_.batch_.token_id(row), Row(op.out, row));
  }
}

void StepRunner::Do(const NormRows& op, int64_t begin, int64_t end) const noexcept {
  const float* weight = e_.weights_.Vector(op.weight);  // [group]
  for (int64_t row = begin; row < end; ++row) {
    for (int64_t at = 0; at < Width(op.x); at += op.group) {
      e_.kernels_.rows.rms_norm(Row(op.x, row) + at, weight, op.eps, op.weight_offset, op.group,
                                Row(op.out, row) + at);
    }
  }
}

void StepRunner::Do(const RopeRows& op, int64_t begin, int64_t end) const noexcept {
  const RopeTable& table = e_.batch_.rope(op.rope);
  for (int64_t row = begin; row < end; ++row) {
    float* out = Row(op.out, row);
    if (op.out != op.x) {
      std::memcpy(out, Row(op.x, row), static_cast<size_t>(Width(op.x)) * sizeof(float));
    }
    e_.kernels_.rows.rope(out, table.cosines(row), table.sines(row), op.heads, op.head_dim,
                          table.rotary_dim());
  }
}

void StepRunner::Do(const StoreKvRows& op, int64_t begin, int64_t end) const noexcept {
  for (int64_t row = begin; row < end; ++row) {
    const BatchRows::Place place = e_.batch_.place(row);
    e_.cache_.Store(op.layer, place.block, place.offset, Row(op.k, row), Row(op.v, row));
  }
}

void StepRunner::Do(const GateRows& op, int64_t begin, int64_t end) const noexcept {
  for (int64_t row = begin; row < end; ++row) {
    e_.kernels_.rows.gated_activation(Row(op.gate, row), Row(op.up, row), op.activation,
                                      Width(op.gate), Row(op.out, row));
  }
}

void StepRunner::Do(const AddRows& op, int64_t begin, int64_t end) const noexcept {
  for (int64_t row = begin; row < end; ++row) {
    e_.kernels_.rows.add(Row(op.a, row), Row(op.b, row), Width(op.a), Row(op.out, row));
  }
}

void StepRunner::Do(const SelectRows& op, int64_t begin, int64_t end) const noexcept {
  for (int64_t row = begin; row < end; ++row) {
    std::memcpy(Row(op.out, row), Row(op.x, e_.batch_.output_row(row)),
                static_cast<size_t>(Width(op.x)) * sizeof(float));
  }
}

void StepRunner::Do(const PrepareRows& op, int64_t begin, int64_t end) const noexcept {
  const LinearRegion& region = e_.plan_.linears[static_cast<size_t>(op.linear)];
  const auto& kernels = e_.linears_[static_cast<size_t>(op.linear)].prepared;
  const int64_t m = e_.batch_.rows(region.rows);
  for (size_t i = 0; i < kernels.size(); ++i) {
    char* prepared = e_.prepared_.as<char>() + Executor::PreparedOffset(kernels, i, m, region.k);
    kernels[i]->prepare(Row(region.x, 0), region.k, m, region.k, begin, end, prepared);
  }
}

}  // namespace octavo::cpu
