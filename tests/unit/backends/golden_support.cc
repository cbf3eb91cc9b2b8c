#include "unit/backends/golden_support.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <stdexcept>

#include "base/thread_pool.h"
#include "checkpoint/checkpoint.h"
#include "loader/load_plan.h"
#include "loader/loader.h"
#include "models/registry.h"
#include "test_support.h"

namespace octavo::testing {
namespace {

constexpr int64_t kBlocks = 24;

template <typename Stored>
std::vector<Stored> ReadTensor(const SafetensorsFile& file, const std::string& name, DType dtype) {
  const TensorEntry* entry = file.Find(name);
  if (entry == nullptr || entry->dtype != dtype) {
    throw std::runtime_error(file.path() + ": no " + name + " of the type expected");
  }
  std::vector<Stored> values(entry->bytes / sizeof(Stored));
  file.file().ReadAt(entry->offset, std::as_writable_bytes(std::span(values)));
  return values;
}

}  // namespace

ThreadPool& TestPool() {
  static ThreadPool pool(2);
  return pool;
}

Expected::Expected(const std::string& directory)
    : file_(directory + "/expected.safetensors"),
      facts_(nlohmann::json::parse(ReadWholeFile(directory + "/expected.json"))) {}

std::vector<float> Expected::Floats(const std::string& name) const {
  return ReadTensor<float>(file_, name, DType::kF32);
}

std::vector<int32_t> Expected::Tokens(const std::string& name) const {
  const std::vector<int64_t> ids = ReadTensor<int64_t>(file_, name, DType::kS64);
  return {ids.begin(), ids.end()};
}

std::vector<std::vector<int32_t>> Expected::Prompts() const {
  std::vector<std::vector<int32_t>> prompts;
  for (int i = 0; Has("input_ids." + std::to_string(i)); ++i) {
    prompts.push_back(Tokens("input_ids." + std::to_string(i)));
  }
  return prompts;
}

Difference Compare(const std::vector<float>& found, const std::vector<float>& expected) {
  if (found.size() != expected.size()) throw std::runtime_error("sizes to compare differ");
  Difference difference;
  double squares = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    const double d = std::fabs(double{found[i]} - expected[i]);
    // Written so that NaN stays.
    if (!(d <= difference.largest)) difference.largest = d;
    squares += d * d;
    if (std::isnan(d)) return {NAN, NAN};
  }
  difference.root_mean_square = std::sqrt(squares / static_cast<double>(found.size()));
  return difference;
}

TestModel::TestModel(const std::string& directory, const ModelOptions& options) {
  const Checkpoint checkpoint = Checkpoint::Open(directory);
  graph_ = BuildModel(checkpoint.config());
  const LoadPlan plan = MakeLoadPlan(
      checkpoint, graph_,
      {.quantization = options.quantization, .quantize_lm_head = options.quantize_lm_head});
  warnings_ = plan.warnings;
  executable_ =
      CompileGraph(options.backend, graph_, {.compute = options.compute, .pool = &TestPool()});
  LoadWeights(plan, graph_, *executable_, TestPool());
  executable_->AllocateKvCache(kBlocks);
  ReleaseAll();
}

void TestModel::ReleaseAll() {
  free_blocks_.resize(kBlocks);
  std::iota(free_blocks_.begin(), free_blocks_.end(), 0);
  std::mt19937 random(20);
  std::shuffle(free_blocks_.begin(), free_blocks_.end(), random);
}

TestModel::Sequence TestModel::NewSequence(int64_t tokens) {
  Sequence sequence;
  for (int64_t covered = 0; covered < tokens; covered += kKvBlockTokens) {
    if (free_blocks_.empty()) throw std::runtime_error("too few KV blocks for this test");
    sequence.block_table.push_back(free_blocks_.back());
    free_blocks_.pop_back();
  }
  return sequence;
}

std::vector<float> TestModel::Run(const std::vector<Step>& steps) {
  std::vector<int32_t> tokens;
  std::vector<SequenceRows> sequences;
  for (const Step& step : steps) {
    const int64_t rows = static_cast<int64_t>(step.tokens.size());
    const int64_t first = step.sequence->length;
    step.sequence->length += rows;
    tokens.insert(tokens.end(), step.tokens.begin(), step.tokens.end());
    sequences.push_back({.rows = rows,
                         .first_position = first,
                         .rope_length = std::max(step.sequence->rope_length, first + rows),
                         .block_table = step.sequence->block_table});
  }
  std::vector<int32_t> output_rows(tokens.size());
  std::iota(output_rows.begin(), output_rows.end(), 0);
  const std::span<const float> logits =
      executable_->Run({.token_ids = tokens, .sequences = sequences, .output_rows = output_rows});
  return {logits.begin(), logits.end()};
}

std::vector<float> TestModel::Logits(const std::vector<int32_t>& tokens, int64_t chunk) {
  const int64_t count = static_cast<int64_t>(tokens.size());
  ReleaseAll();
  Sequence sequence = NewSequence(count);
  sequence.rope_length = count;
  std::vector<float> logits;  // [tokens, vocab]
  for (int64_t begin = 0; begin < count; begin += chunk) {
    const int64_t end = std::min(begin + chunk, count);
    const std::vector<float> rows =
        Run({{&sequence, {tokens.begin() + begin, tokens.begin() + end}}});
    logits.insert(logits.end(), rows.begin(), rows.end());
  }
  return logits;
}

std::vector<std::vector<float>> TestModel::HiddenStates(const std::vector<int32_t>& tokens) {
  ReleaseAll();
  const int64_t count = static_cast<int64_t>(tokens.size());
  const Sequence sequence = NewSequence(count);
  const SequenceRows rows{.rows = count, .rope_length = count, .block_table = sequence.block_table};
  const std::vector<int32_t> output_rows = {static_cast<int32_t>(count - 1)};
  std::vector<std::vector<float>> states;
  ForwardBatch batch{.token_ids = tokens, .sequences = {&rows, 1}, .output_rows = output_rows};
  batch.on_hidden_state = [&](int64_t index, const float* values, int64_t height, int64_t width) {
    states.resize(std::max(states.size(), static_cast<size_t>(index) + 1));
    states[static_cast<size_t>(index)].assign(values, values + height * width);
  };
  executable_->Run(batch);
  return states;
}

int32_t LastArgmax(const std::vector<float>& logits, int64_t vocab) {
  const auto last = logits.end() - vocab;
  return static_cast<int32_t>(std::max_element(last, logits.end()) - last);
}

}  // namespace octavo::testing
