// `octavo bench`: how fast a model loads and runs on this machine. Needs no tokenizer.
#include <fmt/format.h>
#include <octavo/error.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "apps/cli_options.h"
#include "apps/commands.h"
#include "apps/exit_status.h"
#include "apps/format.h"
#include "apps/terminal.h"
#include "base/cpu_features.h"
#include "base/memory_bandwidth.h"
#include "base/process_memory.h"
#include "engine/loaded_model.h"
#include "engine/sequence_runner.h"
#include "tensor/buffer.h"

namespace octavo {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kWarmUpTokens = 16;
// What bandwidth is measured over: far more than the caches hold, yet quick to fill.
constexpr uint64_t kLeastBandwidthBytes = 256u << 20;
constexpr uint64_t kMostBandwidthBytes = 1u << 30;
constexpr int kBandwidthPasses = 5;

struct BenchFlags {
  ModelFlags model;
  int64_t prompt_tokens = 512;
  int64_t decode_tokens = 128;
  int repeat = 3;
  bool json = false;
};

struct BenchResult {
  double load_s = 0;
  uint64_t peak_rss_bytes = 0;
  std::vector<double> prefill_s;  // per repetition
  std::vector<double> decode_s;
  ExecutableInfo info;
  int threads = 0;
  double read_gb_per_s = 0;  // of this machine's memory, measured; 0: could not be
};

double Seconds(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

std::vector<int32_t> RandomIds(int64_t count, int64_t vocab) {
  std::mt19937 random(1);
  std::uniform_int_distribution<int32_t> id(0, static_cast<int32_t>(vocab - 1));
  std::vector<int32_t> ids(static_cast<size_t>(count));
  for (int32_t& value : ids) value = id(random);
  return ids;
}

// Feeds `ids` as a prompt, as generating does: only the last logits are wanted.
void Prefill(SequenceRunner& runner, std::span<const int32_t> ids, int64_t chunk) {
  runner.Reset();
  const auto total = static_cast<int64_t>(ids.size());
  for (int64_t begin = 0; begin < total; begin += chunk) {
    const int64_t rows = std::min(chunk, total - begin);
    runner.Append(ids.subspan(static_cast<size_t>(begin), static_cast<size_t>(rows)),
                  begin + rows == total ? 1 : 0, total);
  }
}

void MeasureRuns(const BenchFlags& flags, LoadedModel& model, BenchResult& result) {
  const int64_t total = flags.prompt_tokens + flags.decode_tokens;
  const std::vector<int32_t> ids = RandomIds(total, model.graph().vocab_size());
  const std::span<const int32_t> all(ids);
  const auto prompt = all.first(static_cast<size_t>(flags.prompt_tokens));
  SequenceRunner runner(model, total);
  const int64_t chunk = model.RowsWithinWorkspace(kPromptChunk, 1);
  // The first pass meets cold caches, sleeping threads and untouched memory.
  Prefill(runner, prompt.first(std::min(prompt.size(), size_t{kWarmUpTokens})), chunk);
  for (int i = 0; i < flags.repeat; ++i) {
    auto start = std::chrono::steady_clock::now();
    Prefill(runner, prompt, chunk);
    result.prefill_s.push_back(Seconds(start));
    start = std::chrono::steady_clock::now();
    for (int64_t t = flags.prompt_tokens; t < total; ++t) {
      runner.Append(all.subspan(static_cast<size_t>(t), 1), 1);
    }
    result.decode_s.push_back(Seconds(start));
  }
}

double MeasureMemory(ThreadPool& pool, uint64_t weight_bytes) {
  try {
    Buffer memory(std::clamp(weight_bytes, kLeastBandwidthBytes, kMostBandwidthBytes));
    return MeasureReadBandwidth(pool, {memory.as<std::byte>(), memory.bytes()}, kBandwidthPasses) /
           1e9;
  } catch (const Error&) {
    return 0;  // under a memory limit there is no room for it
  }
}

double DecodeTokensPerSecond(const BenchFlags& flags, const BenchResult& result) {
  return static_cast<double>(flags.decode_tokens) / Median(result.decode_s);
}

double WeightsGbPerSecond(const BenchFlags& flags, const BenchResult& result) {
  return static_cast<double>(result.info.streamed_bytes) * DecodeTokensPerSecond(flags, result) /
         1e9;
}

Json ToJson(const BenchFlags& flags, const BenchResult& result) {
  const double weights_gb = WeightsGbPerSecond(flags, result);
  const bool measured = result.read_gb_per_s > 0;
  return {
      {"model", flags.model.model},
      {"quantization", flags.model.quantization},
      {"backend", flags.model.backend},
      {"dtype", flags.model.dtype},
      {"prompt_tokens", flags.prompt_tokens},
      {"decode_tokens", flags.decode_tokens},
      {"repeat", flags.repeat},
      {"load_s", result.load_s},
      {"peak_rss_bytes", result.peak_rss_bytes},
      {"prefill_tokens_per_s", static_cast<double>(flags.prompt_tokens) / Median(result.prefill_s)},
      {"decode_tokens_per_s", DecodeTokensPerSecond(flags, result)},
      {"prefill_s", result.prefill_s},
      {"decode_s", result.decode_s},
      {"weight_bytes", result.info.weight_bytes},
      {"streamed_bytes_per_token", result.info.streamed_bytes},
      {"weights_gb_per_s", weights_gb},
      {"read_gb_per_s", measured ? Json(result.read_gb_per_s) : Json(nullptr)},
      {"read_share", measured ? Json(weights_gb / result.read_gb_per_s) : Json(nullptr)},
      {"isa", result.info.isa},
      {"kernels", result.info.kernels},
      {"cpu", HostCpuFeatures().model},
      {"threads", result.threads},
      {"version", OCTAVO_VERSION}};
}

std::string Text(const BenchFlags& flags, const BenchResult& result) {
  std::string text;
  const auto line = [&](const std::string& name, const std::string& value) {
    text += fmt::format("{:<14} {}\n", name, value);
  };
  const double weights_gb = WeightsGbPerSecond(flags, result);
  line("model", fmt::format("{}, quantization {}, backend {}, dtype {}", flags.model.model,
                            flags.model.quantization, flags.model.backend, flags.model.dtype));
  line("cpu", fmt::format("{}, {} threads{}{}", HostCpuFeatures().model, result.threads,
                          result.info.isa.empty() ? "" : ", ", result.info.isa));
  line("kernels", result.info.kernels.empty() ? "-" : JoinNames(result.info.kernels));
  line("load", fmt::format("{:.2f} s", result.load_s));
  line("weights", FormatSize(static_cast<double>(result.info.weight_bytes)));
  line("peak RSS", FormatSize(static_cast<double>(result.peak_rss_bytes)));
  line("prefill", fmt::format("{:.1f} tokens/s ({} tokens, median of {})",
                              static_cast<double>(flags.prompt_tokens) / Median(result.prefill_s),
                              flags.prompt_tokens, flags.repeat));
  line("decode", fmt::format("{:.1f} tokens/s ({} tokens after those)",
                             DecodeTokensPerSecond(flags, result), flags.decode_tokens));
  line("weights read",
       result.read_gb_per_s > 0
           ? fmt::format("{:.2f} GB/s, {:.0f} % of the {:.2f} GB/s that this machine reads",
                         weights_gb, 100 * weights_gb / result.read_gb_per_s, result.read_gb_per_s)
           : fmt::format("{:.2f} GB/s", weights_gb));
  return text;
}

int Bench(const BenchFlags& flags) {
  ShowLibraryMessages(flags.model.quiet || flags.json);
  const auto show = ProgressLine(flags.model.quiet);
  LoadProgressFunction on_progress;
  if (show) {
    on_progress = [&](const LoadProgress& progress) {
      show(progress.bytes_read, progress.bytes_total, progress.seconds);
    };
  }
  LoadedModel model(ToModelOptions(flags.model), on_progress, [&](const ModelPlan& plan) {
    if (flags.prompt_tokens + flags.decode_tokens > plan.graph.context_length()) {
      throw Error(
          ErrorCode::kInvalidArgument,
          fmt::format("{} prompt and {} decode tokens are more than the model's context of {}",
                      flags.prompt_tokens, flags.decode_tokens, plan.graph.context_length()));
    }
  });
  BenchResult result;
  result.load_s = model.load_seconds();
  result.threads = model.pool().size();
  result.info = model.executable().Info();
  MeasureRuns(flags, model, result);
  result.peak_rss_bytes = PeakResidentBytes();  // before memory is taken to measure bandwidth
  result.read_gb_per_s = MeasureMemory(model.pool(), result.info.streamed_bytes);
  WriteOutput(flags.json
                  ? ToJson(flags, result).dump(2, ' ', false, Json::error_handler_t::replace) + "\n"
                  : Text(flags, result));
  return kExitSuccess;
}

}  // namespace

void AddBenchCommand(CLI::App& app, Action& action) {
  const auto flags = std::make_shared<BenchFlags>();
  CLI::App* command =
      app.add_subcommand("bench", "Measure load time, memory and tokens per second");
  AddModelFlags(*command, flags->model);
  command->add_option("--prompt-tokens", flags->prompt_tokens, "Random tokens of the prompt")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 24))
      ->capture_default_str();
  command->add_option("--decode-tokens", flags->decode_tokens, "Tokens fed one by one after it")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 24))
      ->capture_default_str();
  command
      ->add_option("--repeat", flags->repeat, "Times that both are measured; medians are reported")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command->add_flag("--json", flags->json, "Print JSON");
  command->callback([flags, &action] { action = [flags] { return Bench(*flags); }; });
}

}  // namespace octavo
