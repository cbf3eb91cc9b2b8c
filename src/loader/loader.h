// Streams a checkpoint into a backend: panels of output rows are read, quantized, packed and
// released, so that the peak is the final weights plus one panel per thread.
#pragma once

#include <cstdint>
#include <functional>

#include "backends/backend.h"
#include "loader/load_plan.h"

namespace octavo {

struct LoadProgress {
  uint64_t bytes_read = 0;
  uint64_t bytes_total = 0;
  double seconds = 0;
};
// Called from one of the loading threads, one call at a time, at most about ten times a second and
// once at the end.
using LoadProgressFunction = std::function<void(const LoadProgress&)>;

inline constexpr int64_t kPanelBytes =
    1 << 20;  // of source rows read at once by a thread, fewer with many

// Reads every weight of `plan` into `sink` and calls sink.EndWeights(). Throws the first error of
// any thread; the others stop.
void LoadWeights(const LoadPlan& plan, const Graph& graph, WeightSink& sink, ThreadPool& pool,
                 const LoadProgressFunction& on_progress = {});

}  // namespace octavo
