// Linear kernels of every instruction set that this CPU has: decode (m = 1) against the speed of
// reading memory, prefill (m = 512), and quantizing and packing while loading.
//
// Weights are several times larger than the last-level cache and used in turn, so that each pass
// reads memory. For machines that others use too there are, besides the mean, `best`, which a tenth
// of the passes reached, and with one thread `cpu`, work per second that this process really ran.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <ctime>
#include <random>
#include <string>
#include <vector>

#include "base/cpu_features.h"
#include "base/float16.h"
#include "base/thread_pool.h"
#include "kernels/dispatch.h"
#include "kernels/packed_weight.h"
#include "tensor/buffer.h"

namespace octavo {
namespace {

constexpr int64_t kMemoryBytes = int64_t{384} << 20;  // of weights, over all copies
constexpr int64_t kDecodeRows = 1;
constexpr int64_t kPrefillRows = 512;

using Clock = std::chrono::steady_clock;

// Times the passes of a benchmark one by one.
class Passes {
 public:
  template <typename Pass>
  void Run(benchmark::State& state, Pass pass) {
    pass();  // touches what is touched for the first time
    for (auto unused : state) {
      const Clock::time_point begin = Clock::now();
      const std::clock_t cpu_begin = std::clock();
      pass();
      cpu_seconds_ += static_cast<double>(std::clock() - cpu_begin) / CLOCKS_PER_SEC;
      seconds_.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
    }
    std::sort(seconds_.begin(), seconds_.end());
  }
  // Sets counters `unit` (mean), `unit best` and `unit cpu` to work per second.
  void Report(benchmark::State& state, const std::string& unit, double work) const {
    double sum = 0.0;
    for (const double seconds : seconds_) sum += seconds;
    state.counters[unit] = work * static_cast<double>(seconds_.size()) / sum;
    state.counters[unit + " best"] = work / seconds_[seconds_.size() / 10];
    if (state.range(0) == 1) {
      state.counters[unit + " cpu"] = work * static_cast<double>(seconds_.size()) / cpu_seconds_;
    }
  }

 private:
  std::vector<double> seconds_;
  double cpu_seconds_ = 0.0;
};

constexpr int64_t kBlock = 32;  // columns per scale, where the format has blocks

WeightFormat FormatOf(int format) {
  const WeightFormat formats[kLinearFormats] = {
      WeightFormat::Plain(DType::kF32),
      WeightFormat::Plain(DType::kBf16),
      WeightFormat::Plain(DType::kF16),
      WeightFormat::S8Channel(),
      {.element = DType::kS8, .granularity = Granularity::kBlock, .block = kBlock},
      {.element = DType::kS4, .granularity = Granularity::kBlock, .block = kBlock}};
  return formats[format];
}

Buffer RandomFloats(int64_t count) {
  Buffer buffer(static_cast<size_t>(count) * sizeof(float));
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (int64_t i = 0; i < count; ++i) buffer.as<float>()[i] = normal(random);
  return buffer;
}

// Packed weights with values that a model could have: bytes at random would be NaNs and subnormals.
void FillWeights(DType element, Buffer& weights) {
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  constexpr size_t kPeriod = 1 << 16;
  const size_t period = std::min(kPeriod, weights.bytes());
  char* bytes = weights.as<char>();
  for (size_t i = 0; i < period; i += static_cast<size_t>(ByteSize(element))) {
    const float value = normal(random);
    const uint16_t half = element == DType::kBf16 ? F32ToBf16(value) : F32ToF16(value);
    if (element == DType::kF32) {
      std::memcpy(bytes + i, &value, 4);
    } else if (element == DType::kS4) {
      bytes[i] = static_cast<char>(random());
    } else if (element == DType::kS8) {
      bytes[i] = static_cast<char>(static_cast<int>(std::clamp(value * 32.0f, -127.0f, 127.0f)));
    } else {
      std::memcpy(bytes + i, &half, 2);
    }
  }
  for (size_t i = period; i < weights.bytes(); ++i) bytes[i] = bytes[i - period];
}

// y = x w^T with the columns of y dealt out in chunks, as a forward pass does.
void BenchLinear(benchmark::State& state, const KernelTable& table, int format, int mode, int64_t m,
                 int64_t k, int64_t n) {
  const LinearKernel& kernel = table.linear[format][mode];
  ThreadPool pool(static_cast<int>(state.range(0)));
  const WeightFormat layout = FormatOf(format);
  const int64_t weight_bytes = PackedBytes(layout, n, k);
  const int64_t copies = m >= 16 ? 1 : std::max<int64_t>(1, kMemoryBytes / weight_bytes);
  Buffer weights(static_cast<size_t>(copies * weight_bytes));
  FillWeights(layout.element, weights);
  Buffer scales = RandomFloats(std::max<int64_t>(PackedScales(layout, n, k), 1));
  Buffer row_sums(static_cast<size_t>(n) * sizeof(int32_t));
  Buffer x = RandomFloats(m * k);
  Buffer prepared(kernel.prepare ? static_cast<size_t>(kernel.prepared_bytes(m, k)) : 1);
  Buffer y(static_cast<size_t>(m * n) * sizeof(float));
  const int64_t chunks = std::max<int64_t>(1, std::min<int64_t>(4 * pool.size(), n / 64));
  const int64_t chunk_columns = (n / chunks + 63) / 64 * 64;

  int64_t copy = 0;
  Passes passes;
  passes.Run(state, [&] {
    LinearArgs args;
    args.weights = weights.as<char>() + copy * weight_bytes;
    args.scales = layout.granularity != Granularity::kNone ? scales.as<float>() : nullptr;
    args.block = PackedBlock(layout, k);
    args.row_sums = row_sums.as<int32_t>();
    args.x = x.data();
    args.y = y.as<float>();
    args.y_stride = n;
    args.n = n;
    args.k = k;
    if (kernel.prepare) {
      kernel.prepare(x.as<float>(), k, m, k, 0, m, prepared.data());
      args.x = prepared.data();
    }
    pool.ParallelFor((n + chunk_columns - 1) / chunk_columns, [&](int64_t chunk, int) {
      kernel.run(args, 0, m, chunk * chunk_columns, std::min(n, (chunk + 1) * chunk_columns));
    });
    copy = (copy + 1) % copies;
  });
  if (m >= 16) {
    passes.Report(state, "TOPS", 2e-12 * static_cast<double>(m * n * k));
  } else {
    passes.Report(state, "GB/s", 1e-9 * static_cast<double>(weight_bytes));
  }
}

// The sum of `words` words in four streams, each of a quarter of them.
#if defined(__x86_64__)
__attribute__((target_clones("avx512f", "avx2", "default")))
#endif
uint64_t
SumOfWords(const uint64_t* memory, int64_t words) {
  const int64_t quarter = words / 4;
  uint64_t sum[4][8] = {};
  for (int64_t i = 0; i < quarter; i += 8) {
    for (int stream = 0; stream < 4; ++stream) {
      for (int j = 0; j < 8; ++j) sum[stream][j] += memory[stream * quarter + i + j];
    }
  }
  uint64_t total = 0;
  for (const auto& stream : sum) {
    for (const uint64_t part : stream) total += part;
  }
  return total;
}

// Adds up memory as fast as it comes: what decode is measured against.
void BenchRead(benchmark::State& state) {
  ThreadPool pool(static_cast<int>(state.range(0)));
  Buffer memory(kMemoryBytes);
  std::memset(memory.data(), 1, memory.bytes());
  constexpr int64_t kPiece = 1 << 20;
  const int64_t pieces_per_pass = 16;
  int64_t next = 0;
  std::vector<uint64_t> sums(static_cast<size_t>(pool.size()) * 8);
  Passes passes;
  passes.Run(state, [&] {
    pool.ParallelFor(pieces_per_pass, [&](int64_t piece, int thread) {
      sums[static_cast<size_t>(thread) * 8] +=
          SumOfWords(memory.as<uint64_t>() + (next + piece) * kPiece / 8, kPiece / 8);
    });
    next = (next + pieces_per_pass) % (kMemoryBytes / kPiece);
  });
  benchmark::DoNotOptimize(sums.data());
  passes.Report(state, "GB/s", 1e-9 * static_cast<double>(pieces_per_pass * kPiece));
}

// bf16 [rows, k] to codes, on one thread, from memory; GB/s of what is read.
void BenchQuantize(benchmark::State& state, const KernelTable& table, bool pack) {
  constexpr int64_t kRows = 64, kColumns = 2048, kPanels = 512;
  constexpr int64_t kPanelBytes = kRows * kColumns * 2;
  Buffer source(kPanels * kPanelBytes);
  FillWeights(DType::kBf16, source);
  Buffer codes(kRows * kColumns);
  Buffer scales(kRows * sizeof(float));
  Buffer packed(
      static_cast<size_t>(kPanels * PackedBytes(WeightFormat::S8Channel(), kRows, kColumns)));
  std::memset(packed.data(), 0, packed.bytes());
  int64_t panel = 0;
  Passes passes;
  passes.Run(state, [&] {
    const char* rows = source.as<char>() + panel * kPanelBytes;
    const int64_t bad = table.quantize_rows_s8(DType::kBf16, rows, kRows, kColumns,
                                               codes.as<int8_t>(), scales.as<float>());
    if (bad >= 0) state.SkipWithError("a weight is not finite");
    if (pack) table.pack_rows(codes.data(), 1, panel * kRows, kRows, kColumns, packed.data());
    panel = (panel + 1) % kPanels;
  });
  passes.Report(state, "GB/s", 1e-9 * static_cast<double>(kPanelBytes));
}

void Register() {
  const std::vector<int64_t> threads =
      UsableCpuCount() > 1 ? std::vector<int64_t>{1, UsableCpuCount()} : std::vector<int64_t>{1};
  const auto add = [&](const std::string& name, auto function) {
    auto* bench = benchmark::RegisterBenchmark(name.c_str(), function);
    bench->ArgName("threads")->UseRealTime()->Unit(benchmark::kMicrosecond);
    for (const int64_t count : threads) bench->Arg(count);
  };
  add("read", BenchRead);
  for (const KernelTable* listed : AllKernelTables()) {
    if (!listed->supported(HostCpuFeatures())) continue;
    const KernelTable table = ResolveKernels(listed->isa);
    for (int format = 0; format < kLinearFormats; ++format) {
      for (int mode = 0; mode < kActivationModes; ++mode) {
        // Entries of this table alone, and those that serve both modes once.
        if (listed->linear[format][mode].run == nullptr) continue;
        if (mode > 0 && listed->linear[format][0].run == listed->linear[format][mode].run) continue;
        for (const auto& [k, n] : {std::pair<int64_t, int64_t>{2048, 8192}, {576, 1536}}) {
          for (const int64_t m : {kDecodeRows, int64_t{8}, kPrefillRows}) {
            if (m != kDecodeRows && std::string(listed->isa) == "scalar") continue;
            const std::string phase = m == kDecodeRows    ? "decode/"
                                      : m == kPrefillRows ? "prefill/"
                                                          : "batch8/";
            add(phase + table.linear[format][mode].name + "/" + std::to_string(k) + "x" +
                    std::to_string(n),
                [table, format, mode, m, k = k, n = n](benchmark::State& state) {
                  BenchLinear(state, table, format, mode, m, k, n);
                });
          }
        }
      }
    }
    if (listed->quantize_rows_s8 == nullptr) continue;
    for (const bool pack : {false, true}) {
      const std::string name = pack ? "quantize_and_pack/" : "quantize/";
      benchmark::RegisterBenchmark(
          (name + listed->isa).c_str(),
          [table, pack](benchmark::State& state) { BenchQuantize(state, table, pack); })
          ->ArgName("threads")
          ->Arg(1)
          ->UseRealTime()
          ->Unit(benchmark::kMicrosecond);
    }
  }
}

}  // namespace
}  // namespace octavo

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  octavo::Register();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
