#include "loader/loader.h"

#include <fmt/format.h>
#include <octavo/error.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <vector>

#include "base/thread_pool.h"
#include "quant/row_quantizer.h"
#include "quant/scheme.h"
#include "tensor/buffer.h"

namespace octavo {
namespace {

constexpr int64_t kPanelRowUnit = 16;  // WeightSink: panels begin and, but for the last, end there
constexpr int64_t kAllPanelsBytes = 24 << 20;  // of source rows in the hands of all threads
constexpr size_t kReadAheadPanels = 32;        // hinted beyond the panel that is being read

// Work for one thread: rows [row_begin, row_begin + rows) of a weight of the plan.
struct Panel {
  const PlannedWeight* weight = nullptr;
  int64_t row_begin = 0;
  int64_t rows = 0;
};

int64_t RowBytes(const PlannedWeight& weight, const WeightDecl& decl) {
  return decl.in_features() * ByteSize(weight.source.entry->dtype);
}

// Source bytes that a panel aims at: less with many threads, so that all of them stay within the
// loader's 64 MiB (docs/memory.md).
int64_t PanelBytes(int threads) { return std::min(kPanelBytes, kAllPanelsBytes / threads); }

// A row of more than panel_bytes / 16 makes the panel larger than that: the sink takes no fewer
// than 16 rows.
int64_t RowsPerPanel(int64_t row_bytes, int64_t panel_bytes) {
  return std::max(kPanelRowUnit, panel_bytes / row_bytes / kPanelRowUnit * kPanelRowUnit);
}

// All panels, in file order.
std::vector<Panel> CutPanels(const LoadPlan& plan, const Graph& graph, int threads) {
  std::vector<Panel> panels;
  for (const PlannedWeight& weight : plan.weights) {
    const WeightDecl& decl = graph.weight(weight.id);
    const int64_t out_features = decl.out_features();
    const int64_t step = RowsPerPanel(RowBytes(weight, decl), PanelBytes(threads));
    for (int64_t row = 0; row < out_features; row += step) {
      panels.push_back({&weight, row, std::min(step, out_features - row)});
    }
  }
  return panels;
}

// What one panel needs of a thread's buffers, or the largest of many.
struct PanelMemory {
  size_t source = 0;  // bytes
  size_t values = 0;  // bytes
  size_t scales = 0;  // floats

  void Include(const PanelMemory& other) {
    source = std::max(source, other.source);
    values = std::max(values, other.values);
    scales = std::max(scales, other.scales);
  }
};

int64_t ScalesPerRow(const WeightFormat& format, int64_t in_features) {
  switch (format.granularity) {
    case Granularity::kChannel:
      return 1;
    case Granularity::kBlock:
      return (in_features + format.block - 1) / format.block;
    case Granularity::kNone:
    case Granularity::kTensor:
      break;
  }
  return 0;
}

PanelMemory MemoryOf(const Panel& panel, const WeightDecl& decl) {
  const PlannedWeight& weight = *panel.weight;
  PanelMemory memory;
  memory.source = static_cast<size_t>(panel.rows * RowBytes(weight, decl));
  const bool passed_through = weight.format == WeightFormat::Plain(weight.source.entry->dtype);
  if (!passed_through) {
    memory.values =
        static_cast<size_t>(panel.rows * decl.in_features() * ByteSize(weight.format.element));
    memory.scales =
        static_cast<size_t>(panel.rows * ScalesPerRow(weight.format, decl.in_features()));
  }
  return memory;
}

// A thread's own memory, made on its first panel and used for all that follow.
struct ThreadBuffers {
  Buffer source;  // rows as stored
  Buffer values;  // rows as the sink takes them, where that is something else
  Buffer scales;  // f32

  void Reserve(const PanelMemory& largest) {
    if (!source.empty()) return;
    values = Buffer(largest.values);
    scales = Buffer(largest.scales * sizeof(float));
    source = Buffer(largest.source);  // last: its presence says that all three are there
  }
};

// Keeps the kernel reading a fixed distance ahead, so that reading overlaps with quantizing.
class ReadAhead {
 public:
  ReadAhead(const std::vector<Panel>& panels, const Graph& graph)
      : panels_(panels), graph_(graph) {}

  // Called when panel `current` is about to be read; each panel is hinted once.
  void Advance(size_t current) {
    const size_t target = std::min(panels_.size(), current + 1 + kReadAheadPanels);
    size_t next = next_.load(std::memory_order_relaxed);
    while (next < target) {
      if (!next_.compare_exchange_weak(next, next + 1, std::memory_order_relaxed)) continue;
      Hint(panels_[next]);
      ++next;
    }
  }

 private:
  void Hint(const Panel& panel) const {
    const CheckpointTensor& source = panel.weight->source;
    const int64_t row_bytes = RowBytes(*panel.weight, graph_.weight(panel.weight->id));
    source.file->file().WillNeed(
        source.entry->offset + static_cast<uint64_t>(panel.row_begin * row_bytes),
        static_cast<uint64_t>(panel.rows * row_bytes));
  }

  const std::vector<Panel>& panels_;
  const Graph& graph_;
  std::atomic<size_t> next_{0};
};

// Counts bytes and calls the user's function now and then.
class ProgressMeter {
 public:
  ProgressMeter(const LoadProgressFunction& function, uint64_t total)
      : function_(function), total_(total) {}

  void Add(uint64_t bytes) {
    const uint64_t done = done_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    if (!function_) return;
    const std::unique_lock lock(mutex_, std::try_to_lock);  // busy: another thread reports
    if (!lock.owns_lock()) return;
    const Clock::time_point now = Clock::now();
    if (now < next_report_ || done < reported_) return;
    next_report_ = now + kInterval;
    Report(done);
  }

  void Finish() {
    if (function_) Report(total_);
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kInterval{100};

  void Report(uint64_t done) {
    reported_ = done;
    const std::chrono::duration<double> elapsed = Clock::now() - start_;
    function_({.bytes_read = done, .bytes_total = total_, .seconds = elapsed.count()});
  }

  const LoadProgressFunction& function_;
  const uint64_t total_;
  const Clock::time_point start_ = Clock::now();
  std::atomic<uint64_t> done_{0};
  std::mutex mutex_;
  Clock::time_point next_report_ = start_ + kInterval;  // guarded by mutex_
  uint64_t reported_ = 0;                               // guarded by mutex_
};

class Loading {
 public:
  Loading(const LoadPlan& plan, const Graph& graph, WeightSink& sink, int threads,
          const LoadProgressFunction& on_progress)
      : graph_(graph),
        sink_(sink),
        scheme_(MakeScheme(plan.scheme)),
        panels_(CutPanels(plan, graph, threads)),
        buffers_(static_cast<size_t>(threads)),
        read_ahead_(panels_, graph),
        progress_(on_progress, plan.bytes_read) {
    for (const Panel& panel : panels_) {
      largest_.Include(MemoryOf(panel, graph.weight(panel.weight->id)));
    }
  }

  void Run(const LoadPlan& plan, ThreadPool& pool) {
    for (const PlannedWeight& weight : plan.weights) sink_.BeginWeight(weight.id, weight.format);
    pool.ParallelTasks(static_cast<int64_t>(panels_.size()), [this](int64_t chunk, int thread) {
      LoadPanel(static_cast<size_t>(chunk), buffers_[static_cast<size_t>(thread)]);
    });
    sink_.EndWeights();
    progress_.Finish();
  }

 private:
  void LoadPanel(size_t index, ThreadBuffers& buffers) {
    const Panel& panel = panels_[index];
    const PlannedWeight& weight = *panel.weight;
    const WeightDecl& decl = graph_.weight(weight.id);
    const PanelMemory memory = MemoryOf(panel, decl);
    read_ahead_.Advance(index);
    buffers.Reserve(largest_);
    weight.source.file->file().ReadAt(
        weight.source.entry->offset +
            static_cast<uint64_t>(panel.row_begin * RowBytes(weight, decl)),
        {buffers.source.as<std::byte>(), memory.source});
    WeightPanel out{.row_begin = panel.row_begin, .rows = panel.rows};
    if (scheme_ != nullptr && weight.recipe.keep) RequireFinite(panel, decl, buffers);
    if (!weight.recipe.keep) {
      Quantize(panel, decl, buffers);
      out.values = buffers.values.data();
      out.scales = memory.scales > 0 ? buffers.scales.as<float>() : nullptr;
    } else if (memory.values > 0) {  // float64, which no backend takes
      ConvertToF32(weight.source.entry->dtype, buffers.source.data(),
                   panel.rows * decl.in_features(), buffers.values.as<float>());
      out.values = buffers.values.data();
    } else {
      out.values = buffers.source.data();
    }
    sink_.PutPanel(weight.id, out);
    progress_.Add(memory.source);
  }

  // Runs `action`, whose errors name no file: a scheme knows none.
  template <typename Action>
  static void NamingTheFile(const CheckpointTensor& source, Action&& action) {
    try {
      action();
    } catch (const Error& error) {
      throw Error(error.code(), fmt::format("{}: {}", source.file->path(), error.what()));
    }
  }

  // A NaN in a norm or a head makes garbage of a quantized model as one in a linear does.
  static void RequireFinite(const Panel& panel, const WeightDecl& decl,
                            const ThreadBuffers& buffers) {
    const CheckpointTensor& source = panel.weight->source;
    NamingTheFile(source, [&] {
      RequireFiniteRows({.tensor = decl.name,
                         .stored = source.entry->dtype,
                         .row_begin = panel.row_begin,
                         .rows = panel.rows,
                         .in_features = decl.in_features(),
                         .data = buffers.source.data()});
    });
  }

  void Quantize(const Panel& panel, const WeightDecl& decl, ThreadBuffers& buffers) const {
    const CheckpointTensor& source = panel.weight->source;
    NamingTheFile(source, [&] {
      scheme_->QuantizePanel({.tensor = decl.name,
                              .out_features = decl.out_features(),
                              .in_features = decl.in_features(),
                              .stored = source.entry->dtype},
                             panel.row_begin, panel.rows, buffers.source.data(),
                             buffers.values.data(), buffers.scales.as<float>());
    });
  }

  const Graph& graph_;
  WeightSink& sink_;
  const std::unique_ptr<const QuantScheme> scheme_;  // null: nothing is quantized
  const std::vector<Panel> panels_;
  PanelMemory largest_;
  std::vector<ThreadBuffers> buffers_;  // [threads]
  ReadAhead read_ahead_;
  ProgressMeter progress_;
};

}  // namespace

void LoadWeights(const LoadPlan& plan, const Graph& graph, WeightSink& sink, ThreadPool& pool,
                 const LoadProgressFunction& on_progress) {
  Loading(plan, graph, sink, pool.size(), on_progress).Run(plan, pool);
}

}  // namespace octavo
