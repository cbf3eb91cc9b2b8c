// How a linear region is cut into tasks of about equal work: column ranges x row ranges. The
// columns of all its outputs count as one row of 16-column blocks, so that a decode step is shared
// evenly however narrow the single outputs are.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "backends/cpu/plan.h"
#include "kernels/kernel_table.h"

namespace octavo::cpu {

class LinearTiles {
 public:
  LinearTiles(const LinearRegion& region, int64_t m, int threads)
      : outputs_(region.outputs), m_(m) {
    for (const LinearOutput& output : outputs_) blocks_ += Blocks(output);
    // As many rows as their activations, two bytes per column, take half of a usual second-level
    // cache.
    const int64_t fitting = kRowBytes / (2 * std::max<int64_t>(region.k, 1));
    m_tile_ = std::clamp<int64_t>(fitting / 4 * 4, 16, 256);
    m_tiles_ = (m + m_tile_ - 1) / m_tile_;
    const int64_t shares = int64_t{kTasksPerThread} * threads;
    const int64_t wanted =
        m_tiles_ > 1 ? std::max(blocks_ / kTileBlocks, shares / m_tiles_) : shares;
    n_tiles_ = std::clamp<int64_t>(wanted, 1, std::max<int64_t>(blocks_, 1));
  }

  int64_t count() const { return n_tiles_ * m_tiles_; }

  // Calls run(output, m_begin, m_end, n_begin, n_end) for what task `index` has of each output.
  // Tasks in a row share their columns: weights are read from memory once.
  template <typename Run>
  void ForEachPart(int64_t index, Run run) const {
    const int64_t m_begin = index % m_tiles_ * m_tile_;
    const int64_t m_end = std::min(m_begin + m_tile_, m_);
    const int64_t n_tile = index / m_tiles_;
    int64_t begin = n_tile * blocks_ / n_tiles_;  // in blocks from here on
    int64_t end = (n_tile + 1) * blocks_ / n_tiles_;
    for (size_t i = 0; i < outputs_.size() && end > 0; ++i) {
      const int64_t blocks = Blocks(outputs_[i]);
      if (begin < blocks) {
        run(i, m_begin, m_end, begin * kPackedRows,
            std::min(std::min(end, blocks) * kPackedRows, outputs_[i].n));
      }
      begin = std::max<int64_t>(begin - blocks, 0);
      end -= blocks;
    }
  }

 private:
  static constexpr int kTasksPerThread = 4;
  static constexpr int64_t kTileBlocks = 16;  // 256 columns
  static constexpr int64_t kRowBytes = 512 * 1024;

  static int64_t Blocks(const LinearOutput& output) {
    return (output.n + kPackedRows - 1) / kPackedRows;
  }

  std::span<const LinearOutput> outputs_;
  int64_t m_;
  int64_t blocks_ = 0;
  int64_t m_tile_ = 0;
  int64_t m_tiles_ = 0;
  int64_t n_tiles_ = 0;
};

}  // namespace octavo::cpu
