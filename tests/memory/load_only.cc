// The loader alone: plans a checkpoint, loads it into the CPU backend, and prints one line of JSON
// with the memory it took. Used by test_memory.py, which holds the numbers to the limits of
// docs/memory.md.
//
//   load_only MODEL_DIR [SCHEME [THREADS]]
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <exception>
#include <string>

#include "backends/backend.h"
#include "base/process_memory.h"
#include "base/thread_pool.h"
#include "checkpoint/checkpoint.h"
#include "loader/load_plan.h"
#include "loader/loader.h"
#include "models/registry.h"

namespace octavo {
namespace {

void LoadAndReport(const std::string& directory, const std::string& scheme, int threads) {
  const auto begin = std::chrono::steady_clock::now();
  const Checkpoint checkpoint = Checkpoint::Open(directory);
  const Graph graph = BuildModel(checkpoint.config());
  const LoadPlan plan = MakeLoadPlan(checkpoint, graph, {.quantization = scheme});
  ThreadPool pool(threads);
  const auto executable = CompileGraph("cpu", graph, {.pool = &pool});
  LoadWeights(plan, graph, *executable, pool);
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  fmt::print("{}\n", fmt::format(R"({{"plan_bytes_read":{},"plan_bytes_kept":{},"weight_bytes":{},)"
                                 R"("peak_resident_bytes":{},"seconds":{:.3f},"threads":{}}})",
                                 plan.bytes_read, plan.bytes_kept, executable->Info().weight_bytes,
                                 PeakResidentBytes(), elapsed.count(), pool.size()));
}

}  // namespace
}  // namespace octavo

int main(int argc, char** argv) {
  if (argc < 2 || argc > 4) {
    fmt::print(stderr, "usage: load_only MODEL_DIR [SCHEME [THREADS]]\n");
    return 2;
  }
  try {
    octavo::LoadAndReport(argv[1], argc > 2 ? argv[2] : "int8", argc > 3 ? std::stoi(argv[3]) : 0);
  } catch (const std::exception& error) {
    fmt::print(stderr, "load_only: {}\n", error.what());
    return 1;
  }
  return 0;
}
