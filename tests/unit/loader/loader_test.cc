#include "loader/loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <octavo/error.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "base/thread_pool.h"
#include "loader_test_support.h"
#include "quant/scheme.h"

namespace octavo {
namespace {

using ::octavo::testing::FixturePath;
using ::octavo::testing::PlanFixture;
using ::octavo::testing::PlannedCheckpoint;
using ::octavo::testing::ReceivedWeight;
using ::octavo::testing::RecordingSink;
using ::octavo::testing::TempDir;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

// What the sink must hold of a weight: its whole tensor read and quantized at once.
ReceivedWeight Expected(const PlannedWeight& planned, const WeightDecl& decl) {
  const TensorEntry& entry = *planned.source.entry;
  std::vector<std::byte> source(entry.bytes);
  planned.source.file->file().ReadAt(entry.offset, source);
  ReceivedWeight expected{.format = planned.format};
  const int64_t count = decl.out_features() * decl.in_features();
  expected.values.resize(static_cast<size_t>(count * ByteSize(planned.format.element)));
  if (!planned.recipe.keep) {
    expected.scales.resize(static_cast<size_t>(decl.out_features()));
    MakeScheme("int8")->QuantizePanel(
        {decl.name, decl.out_features(), decl.in_features(), entry.dtype}, 0, decl.out_features(),
        source.data(), expected.values.data(), expected.scales.data());
  } else if (entry.dtype == DType::kF64) {
    ConvertToF32(entry.dtype, source.data(), count,
                 reinterpret_cast<float*>(expected.values.data()));
  } else {
    expected.values = source;
  }
  return expected;
}

void ExpectAllArrived(const LoadPlan& plan, const Graph& graph, const RecordingSink& sink) {
  EXPECT_THAT(sink.Problems(), IsEmpty());
  for (const PlannedWeight& planned : plan.weights) {
    const WeightDecl& decl = graph.weight(planned.id);
    const ReceivedWeight expected = Expected(planned, decl);
    const ReceivedWeight& got = sink.weight(planned.id);
    EXPECT_EQ(got.format, planned.format) << decl.name;
    EXPECT_TRUE(got.values == expected.values) << decl.name;
    EXPECT_TRUE(got.scales == expected.scales) << decl.name;
  }
}

class LoadFixtures : public ::testing::TestWithParam<const char*> {};

TEST_P(LoadFixtures, EveryRowArrivesOnceAndRight) {
  for (const char* scheme : {"int8", "none"}) {
    for (const int threads : {1, 4}) {
      const PlannedCheckpoint planned = PlanFixture(GetParam(), {.quantization = scheme});
      RecordingSink sink(planned.graph);
      ThreadPool pool(threads);
      LoadWeights(planned.plan, planned.graph, sink, pool);
      ExpectAllArrived(planned.plan, planned.graph, sink);
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Storage, LoadFixtures,
                         ::testing::Values("storage/plain", "storage/sharded", "storage/odd_order",
                                           "storage/odd_shapes", "storage/dtype_mixed",
                                           "storage/dtype_f64", "storage/unaligned_header",
                                           "storage/tied_absent", "storage/zero_row",
                                           "storage/outlier_row"));

// A checkpoint of OneLinearGraph(out, in) in bf16, every weight another small number.
class OneLinear {
 public:
  OneLinear(int64_t out_features, int64_t in_features)
      : graph(testing::OneLinearGraph(out_features, in_features)) {
    const std::vector<std::byte> embed = Weights(16 * in_features);
    const std::vector<std::byte> linear = Weights(out_features * in_features);
    const std::vector<std::byte> head = Weights(16 * out_features);
    std::filesystem::copy(FixturePath("storage/plain/config.json"), directory / "config.json");
    WriteSafetensors(directory / "model.safetensors",
                     {{"embed.weight", DType::kBf16, {16, in_features}, embed},
                      {"linear.weight", DType::kBf16, {out_features, in_features}, linear},
                      {"head.weight", DType::kBf16, {16, out_features}, head}});
  }
  std::string file() const { return directory / "model.safetensors"; }
  WeightId linear() const {
    for (size_t i = 0; i < graph.weights().size(); ++i) {
      if (graph.weights()[i].name == "linear.weight") return static_cast<WeightId>(i);
    }
    throw std::runtime_error("no linear.weight");
  }

  TempDir directory;
  Graph graph;

 private:
  static std::vector<std::byte> Weights(int64_t count) {
    std::vector<std::byte> bytes(static_cast<size_t>(count) * 2);
    uint32_t state = 1;
    for (size_t i = 0; i < bytes.size(); i += 2) {
      state = state * 1664525u + 1013904223u;
      bytes[i] = static_cast<std::byte>(state >> 24);
      bytes[i + 1] = static_cast<std::byte>(0x3c | (state >> 16 & 0x80));  // +-0.0078 .. 0.03
    }
    return bytes;
  }
};

TEST(LoadWeights, PanelsAreAboutAMebibyteOfRows) {
  const OneLinear model(5000, 256);  // rows of 512 bytes: 2048 to a panel
  const Checkpoint checkpoint = Checkpoint::Open(model.directory.path());
  const LoadPlan plan = MakeLoadPlan(checkpoint, model.graph, {.quantization = "int8"});
  RecordingSink sink(model.graph);
  ThreadPool pool(1);
  LoadWeights(plan, model.graph, sink, pool);
  EXPECT_THAT(sink.panel_rows(model.linear()), ElementsAre(2048, 2048, 904));
  ExpectAllArrived(plan, model.graph, sink);
}

TEST(LoadWeights, ManyThreadsTakeSmallerPanels) {
  const OneLinear model(2500, 256);
  const Checkpoint checkpoint = Checkpoint::Open(model.directory.path());
  const LoadPlan plan = MakeLoadPlan(checkpoint, model.graph, {.quantization = "int8"});
  RecordingSink sink(model.graph);
  ThreadPool pool(48);  // half a MiB each: 1024 rows
  LoadWeights(plan, model.graph, sink, pool);
  EXPECT_THAT(sink.panel_rows(model.linear()), UnorderedElementsAre(1024, 1024, 452));
  ExpectAllArrived(plan, model.graph, sink);
}

TEST(LoadWeights, WideRowsComeSixteenAtATime) {
  const OneLinear model(50, 40000);  // rows of 80000 bytes: 13 would be a MiB
  const Checkpoint checkpoint = Checkpoint::Open(model.directory.path());
  const LoadPlan plan = MakeLoadPlan(checkpoint, model.graph, {.quantization = "int8"});
  RecordingSink sink(model.graph);
  ThreadPool pool(1);
  LoadWeights(plan, model.graph, sink, pool);
  EXPECT_THAT(sink.panel_rows(model.linear()), ElementsAre(16, 16, 16, 2));
  ExpectAllArrived(plan, model.graph, sink);
}

TEST(LoadWeights, OneThreadReadsInFileOrder) {
  const PlannedCheckpoint planned = PlanFixture("storage/odd_order", {.quantization = "int8"});
  RecordingSink sink(planned.graph);
  ThreadPool pool(1);
  LoadWeights(planned.plan, planned.graph, sink, pool);
  std::vector<std::pair<WeightId, int64_t>> expected;
  for (const PlannedWeight& weight : planned.plan.weights) expected.emplace_back(weight.id, 0);
  EXPECT_EQ(sink.order(), expected);  // every tensor of the fixture is one panel
}

// Holds each panel back, so that every thread gets some.
class SlowSink : public RecordingSink {
 public:
  using RecordingSink::RecordingSink;
  void PutPanel(WeightId id, const WeightPanel& panel) override {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    RecordingSink::PutPanel(id, panel);
  }
};

TEST(LoadWeights, UsesAllThreadsAndReportsProgress) {
  const OneLinear model(20000, 512);  // 20 panels, and the embedding and the head
  const Checkpoint checkpoint = Checkpoint::Open(model.directory.path());
  const LoadPlan plan = MakeLoadPlan(checkpoint, model.graph, {.quantization = "int8"});
  SlowSink sink(model.graph);
  ThreadPool pool(3);
  std::atomic<int> inside{0};
  std::vector<LoadProgress> reports;
  LoadWeights(plan, model.graph, sink, pool, [&](const LoadProgress& progress) {
    EXPECT_EQ(inside.fetch_add(1), 0);
    reports.push_back(progress);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    inside.fetch_sub(1);
  });
  EXPECT_EQ(sink.threads(), 3u);
  ExpectAllArrived(plan, model.graph, sink);
  ASSERT_GE(reports.size(), 2u);
  EXPECT_LE(static_cast<double>(reports.size()), reports.back().seconds * 10 + 1);
  for (size_t i = 0; i < reports.size(); ++i) {
    EXPECT_EQ(reports[i].bytes_total, plan.bytes_read);
    const LoadProgress& before = reports[i > 0 ? i - 1 : 0];
    EXPECT_GE(reports[i].bytes_read, before.bytes_read);
    EXPECT_GE(reports[i].seconds, before.seconds);
  }
  EXPECT_LT(reports.front().bytes_read, plan.bytes_read);
  EXPECT_EQ(reports.back().bytes_read, plan.bytes_read);
}

TEST(LoadWeights, AWeightThatIsNotFiniteStopsQuantizingButNotNone) {
  for (const char* fixture : {"storage/nan_weight", "storage/inf_weight"}) {
    for (const int threads : {1, 3}) {
      ThreadPool pool(threads);
      const PlannedCheckpoint quantized = PlanFixture(fixture, {.quantization = "int8"});
      RecordingSink sink(quantized.graph);
      try {
        LoadWeights(quantized.plan, quantized.graph, sink, pool);
        ADD_FAILURE() << fixture;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kDataLoss);
        EXPECT_THAT(error.what(),
                    HasSubstr(std::string(fixture) +
                              "/model.safetensors: tensor model.layers.0.self_attn.q_proj.weight, "
                              "row 3, column 5: the weight is " +
                              std::string(fixture).substr(8, 3)));
      }
      EXPECT_EQ(sink.ends(), 0);
      const PlannedCheckpoint kept = PlanFixture(fixture, {.quantization = "none"});
      RecordingSink kept_sink(kept.graph);
      LoadWeights(kept.plan, kept.graph, kept_sink, pool);
      ExpectAllArrived(kept.plan, kept.graph, kept_sink);
    }
  }
}

class FailingSink : public RecordingSink {
 public:
  using RecordingSink::RecordingSink;
  void PutPanel(WeightId id, const WeightPanel& panel) override {
    if (count_.fetch_add(1) == 5) throw Error(ErrorCode::kResourceExhausted, "the sink is full");
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    RecordingSink::PutPanel(id, panel);
  }
  int count() const { return count_; }

 private:
  std::atomic<int> count_{0};
};

TEST(LoadWeights, TheFirstErrorOfASinkStopsAllThreads) {
  const OneLinear model(20000, 512);
  const Checkpoint checkpoint = Checkpoint::Open(model.directory.path());
  const LoadPlan plan = MakeLoadPlan(checkpoint, model.graph, {.quantization = "int8"});
  for (const int threads : {1, 4}) {
    FailingSink sink(model.graph);
    ThreadPool pool(threads);
    int reports_of_the_end = 0;
    try {
      LoadWeights(plan, model.graph, sink, pool, [&](const LoadProgress& progress) {
        reports_of_the_end += progress.bytes_read == progress.bytes_total;
      });
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kResourceExhausted);
      EXPECT_STREQ(error.what(), "the sink is full");
    }
    EXPECT_EQ(sink.ends(), 0);
    EXPECT_EQ(reports_of_the_end, 0);
    EXPECT_LE(sink.count(), 6 + 2 * threads);  // of 24: those under way, not the rest
    // The pool works on.
    RecordingSink again(model.graph);
    LoadWeights(plan, model.graph, again, pool);
    EXPECT_THAT(again.Problems(), IsEmpty());
  }
}

TEST(LoadWeights, AFileCutShortAfterPlanningIsAnError) {
  const OneLinear model(5000, 256);
  const Checkpoint checkpoint = Checkpoint::Open(model.directory.path());
  const LoadPlan plan = MakeLoadPlan(checkpoint, model.graph, {.quantization = "int8"});
  std::filesystem::resize_file(model.file(), 1000000);
  RecordingSink sink(model.graph);
  ThreadPool pool(1);  // the panel that meets the end is the first to fail
  try {
    LoadWeights(plan, model.graph, sink, pool);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kDataLoss);
    EXPECT_THAT(error.what(), AllOf(HasSubstr(model.file()), HasSubstr("ends at byte 1000000")));
  }
}

TEST(LoadWeights, AnExceptionOfTheProgressFunctionStopsTheLoading) {
  const OneLinear model(20000, 512);
  const Checkpoint checkpoint = Checkpoint::Open(model.directory.path());
  const LoadPlan plan = MakeLoadPlan(checkpoint, model.graph, {.quantization = "int8"});
  SlowSink sink(model.graph);
  ThreadPool pool(2);
  const auto cancel = [](const LoadProgress&) { throw Error(ErrorCode::kCancelled, "enough"); };
  EXPECT_THROW(LoadWeights(plan, model.graph, sink, pool, cancel), Error);
  EXPECT_EQ(sink.ends(), 0);
}

}  // namespace
}  // namespace octavo
