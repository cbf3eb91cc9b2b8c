// A model of the fixtures on a backend, and batches over it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backends/backend.h"
#include "checkpoint/safetensors_file.h"
#include "graph/graph.h"

namespace octavo::testing {

ThreadPool& TestPool();

// expected.safetensors and expected.json of a fixture.
class Expected {
 public:
  explicit Expected(const std::string& directory);
  bool Has(const std::string& name) const { return file_.Find(name) != nullptr; }
  std::vector<float> Floats(const std::string& name) const;    // F32
  std::vector<int32_t> Tokens(const std::string& name) const;  // I64
  std::vector<std::vector<int32_t>> Prompts() const;           // input_ids.0, .1, ...
  const nlohmann::json& facts() const { return facts_; }

 private:
  SafetensorsFile file_;
  nlohmann::json facts_;
};

struct Difference {
  double largest = 0;
  double root_mean_square = 0;
};
// NaN in either list gives NaN.
Difference Compare(const std::vector<float>& found, const std::vector<float>& expected);

struct ModelOptions {
  std::string backend;
  ComputeType compute = ComputeType::kFloat32;
  std::string quantization = "none";
  bool quantize_lm_head = false;
};

// One model with a KV cache of a few blocks, which sequences take in an order of no pattern.
class TestModel {
 public:
  TestModel(const std::string& directory, const ModelOptions& options);

  struct Sequence {
    std::vector<int32_t> block_table;
    int64_t length = 0;       // tokens in the KV cache
    int64_t rope_length = 0;  // 0: length after each step
  };
  // Takes blocks for `tokens` tokens; Release hands all of them back.
  Sequence NewSequence(int64_t tokens);
  void ReleaseAll();

  struct Step {
    Sequence* sequence;
    std::vector<int32_t> tokens;
  };
  // One batch; logits of all its rows [rows, vocab].
  std::vector<float> Run(const std::vector<Step>& steps);
  // A sequence of its own, in chunks of `chunk` tokens; logits of all rows.
  std::vector<float> Logits(const std::vector<int32_t>& tokens, int64_t chunk = 1 << 20);
  std::vector<std::vector<float>> HiddenStates(const std::vector<int32_t>& tokens);

  Executable& executable() { return *executable_; }
  int64_t vocab() const { return graph_.vocab_size(); }
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  Graph graph_;
  std::unique_ptr<Executable> executable_;
  std::vector<std::string> warnings_;
  std::vector<int32_t> free_blocks_;
};

// The index of the largest of the last row.
int32_t LastArgmax(const std::vector<float>& logits, int64_t vocab);

}  // namespace octavo::testing
