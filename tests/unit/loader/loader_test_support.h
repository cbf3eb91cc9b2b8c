// What the loader's tests share: checkpoints of their own making and a sink that remembers
// everything.
#pragma once

#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "backends/backend.h"
#include "checkpoint/checkpoint.h"
#include "graph/graph.h"
#include "graph/graph_builder.h"
#include "loader/load_plan.h"
#include "loader/loader.h"
#include "models/registry.h"
#include "test_support.h"

namespace octavo::testing {

// A fixture, its model and its plan.
struct PlannedCheckpoint {
  PlannedCheckpoint(const std::string& directory, const LoadOptions& options)
      : checkpoint(Checkpoint::Open(directory)),
        graph(BuildModel(checkpoint.config())),
        plan(MakeLoadPlan(checkpoint, graph, options)) {}

  const PlannedWeight& weight(const std::string& name) const {
    for (const PlannedWeight& weight : plan.weights) {
      if (graph.weight(weight.id).name == name) return weight;
    }
    throw std::runtime_error("the plan has no weight " + name);
  }

  Checkpoint checkpoint;
  Graph graph;
  LoadPlan plan;
};

inline PlannedCheckpoint PlanFixture(const std::string& name, const LoadOptions& options = {}) {
  return PlannedCheckpoint(FixturePath(name), options);
}

// A model of one linear [out, in] between an embedding and a head of 16 rows.
inline Graph OneLinearGraph(int64_t out_features, int64_t in_features) {
  GraphBuilder builder;
  Value x = builder.Embedding("embed", 16, in_features);
  x = builder.Linear(x, "linear", out_features);
  builder.Logits(builder.SelectRows(x), "head", /*tied_to_embedding=*/false);
  builder.SetContextLength(16);
  return builder.Finish();
}

// A weight as a sink received it.
struct ReceivedWeight {
  WeightFormat format;
  std::vector<std::byte> values{};  // [out, in] of format.element
  std::vector<float> scales{};      // [out], or empty
  std::vector<int> times{};         // [out]: how often each row came
};

// Keeps every row, and the rules of WeightSink that it sees broken.
class RecordingSink : public WeightSink {
 public:
  explicit RecordingSink(const Graph& graph) : graph_(graph) {}

  void BeginWeight(WeightId id, const WeightFormat& format) override {
    const std::lock_guard lock(mutex_);
    if (panels_ > 0) problems_.push_back("BeginWeight after a panel");
    const WeightDecl& decl = graph_.weight(id);
    const auto rows = static_cast<size_t>(decl.out_features());
    ReceivedWeight weight{.format = format};
    weight.values.resize(rows * RowBytes(id, format));
    weight.scales.resize(format.granularity == Granularity::kChannel ? rows : 0);
    weight.times.resize(rows);
    if (!weights_.emplace(id, std::move(weight)).second) problems_.push_back("begun twice");
  }

  void PutPanel(WeightId id, const WeightPanel& panel) override {
    const std::lock_guard lock(mutex_);
    ++panels_;
    threads_.insert(std::this_thread::get_id());
    order_.emplace_back(id, panel.row_begin);
    panel_rows_[id].push_back(panel.rows);
    ReceivedWeight& weight = weights_.at(id);
    const auto end = static_cast<size_t>(panel.row_begin + panel.rows);
    if (panel.row_begin % 16 != 0) problems_.push_back("row_begin");
    if (panel.rows % 16 != 0 && end != weight.times.size()) problems_.push_back("rows");
    if ((panel.scales != nullptr) != !weight.scales.empty()) problems_.push_back("scales");
    const size_t row_bytes = RowBytes(id, weight.format);
    const auto begin = static_cast<size_t>(panel.row_begin);
    for (size_t row = begin; row < end; ++row) ++weight.times.at(row);
    std::memcpy(weight.values.data() + begin * row_bytes, panel.values, (end - begin) * row_bytes);
    if (panel.scales != nullptr) {
      std::memcpy(weight.scales.data() + begin, panel.scales, (end - begin) * sizeof(float));
    }
  }

  void EndWeights() override { ++ends_; }

  // Once all has arrived: nothing broken, every row of every weight exactly once.
  std::vector<std::string> Problems() const {
    std::vector<std::string> problems = problems_;
    if (ends_ != 1) problems.push_back("EndWeights called " + std::to_string(ends_) + " times");
    if (weights_.size() != graph_.weights().size()) problems.push_back("weights missing");
    for (const auto& [id, weight] : weights_) {
      for (const int times : weight.times) {
        if (times != 1) problems.push_back("a row of " + graph_.weight(id).name);
      }
    }
    return problems;
  }

  const ReceivedWeight& weight(WeightId id) const { return weights_.at(id); }
  const std::vector<int64_t>& panel_rows(WeightId id) const { return panel_rows_.at(id); }
  const std::vector<std::pair<WeightId, int64_t>>& order() const { return order_; }
  size_t panels() const { return panels_; }
  size_t threads() const { return threads_.size(); }
  int ends() const { return ends_; }

 private:
  size_t RowBytes(WeightId id, const WeightFormat& format) const {
    return static_cast<size_t>(graph_.weight(id).in_features() * ByteSize(format.element));
  }

  const Graph& graph_;
  std::mutex mutex_;
  std::map<WeightId, ReceivedWeight> weights_;
  std::map<WeightId, std::vector<int64_t>> panel_rows_;
  std::vector<std::pair<WeightId, int64_t>> order_;
  std::vector<std::string> problems_;
  std::set<std::thread::id> threads_;
  size_t panels_ = 0;
  int ends_ = 0;
};

}  // namespace octavo::testing
