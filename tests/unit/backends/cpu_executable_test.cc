// The CPU backend on small graphs, for every instruction set that this CPU runs, against the
// reference backend and against itself in other batch shapes.
#include "backends/cpu/cpu_executable.h"

#include <gtest/gtest.h>
#include <octavo/error.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <tuple>
#include <vector>

#include "backends/reference/reference_executable.h"
#include "base/cpu_features.h"
#include "base/process_memory.h"
#include "base/thread_pool.h"
#include "graph/graph_builder.h"
#include "kernels/dispatch.h"
#include "unit/backends/cpu_support.h"

namespace octavo::testing {
namespace {

ThreadPool& Pool() {
  static ThreadPool pool(3);
  return pool;
}

double LargestDifference(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return INFINITY;
  double largest = 0.0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(double{a[i]} - b[i]);
    if (!(difference <= largest)) largest = difference;  // NaN stays
  }
  return largest;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

class CpuExecutableTest
    : public ::testing::TestWithParam<std::tuple<const KernelTable*, ComputeType>> {
 protected:
  void SetUp() override {
    const KernelTable* table = std::get<0>(GetParam());
    if (!table->supported(HostCpuFeatures())) GTEST_SKIP() << "this CPU lacks the instructions";
    kernels_ = ResolveKernels(table->isa);
  }
  ComputeType compute() const { return std::get<1>(GetParam()); }

  std::unique_ptr<Executable> Make(const Graph& graph, const ElementOf& element_of) const {
    auto executable = MakeCpuExecutable(graph, {.compute = compute(), .pool = &Pool()}, kernels_);
    FillWeights(graph, element_of, *executable);
    return executable;
  }

  // Of logits with a deviation near 1.
  double Tolerance() const { return compute() == ComputeType::kFloat32 ? 2e-5 : 5e-2; }

  void ExpectAsReference(const DecoderShape& shape, const ElementOf& element_of) const {
    const Graph graph = MakeDecoder(shape);
    const auto cpu = Make(graph, element_of);
    const auto reference = MakeReferenceExecutable(graph, {.pool = &Pool()});
    FillWeights(graph, element_of, *reference);
    Session on_cpu(*cpu, shape.vocab), on_reference(*reference, shape.vocab);
    for (const int64_t tokens : {1, 33, 70}) {
      const auto found = on_cpu.RunAlone(on_cpu.NewSequence(tokens, 1), 1000);
      const auto expected = on_reference.RunAlone(on_reference.NewSequence(tokens, 1), 1000);
      EXPECT_LE(LargestDifference(found, expected), Tolerance()) << tokens << " tokens";
    }
  }

  KernelTable kernels_;
};

TEST_P(CpuExecutableTest, EveryWeightType) {
  for (const DType element : {DType::kF32, DType::kBf16, DType::kF16, DType::kS8}) {
    SCOPED_TRACE(Name(element));
    ExpectAsReference({}, All(element));
    ExpectAsReference({.tied = true}, All(element));
  }
}

// Linears of one input in four formats, as --skip-modules can make them.
TEST_P(CpuExecutableTest, MixedWeightTypes) {
  constexpr DType kElements[] = {DType::kS8, DType::kBf16, DType::kF32, DType::kS8, DType::kF16};
  ExpectAsReference({}, [&](const WeightDecl&, WeightId id) { return kElements[id % 5]; });
}

TEST_P(CpuExecutableTest, Shapes) {
  ExpectAsReference({.heads = 4, .kv_heads = 4, .head_dim = 16}, All(DType::kS8));
  ExpectAsReference({.heads = 7, .kv_heads = 1, .head_dim = 34}, All(DType::kBf16));
  ExpectAsReference({.vocab = 1000, .hidden = 128, .head_dim = 80}, All(DType::kS8));
  ExpectAsReference({.window = 9}, All(DType::kS8));
  ExpectAsReference({.head_norm = true}, All(DType::kS8));
  ExpectAsReference({.rope = RopeType::kDynamic}, All(DType::kS8));
}

TEST_P(CpuExecutableTest, ChunkedPrefillIsBitwiseTheWhole) {
  const DecoderShape shape{.window = 50, .head_norm = true};
  const Graph graph = MakeDecoder(shape);
  const auto executable = Make(graph, All(DType::kS8));
  Session session(*executable, shape.vocab);
  const auto sequence = session.NewSequence(130, 2);
  const std::vector<float> whole = session.RunAlone(sequence, 1000);
  for (const int64_t chunk : {1, 5, 32, 100}) {
    EXPECT_TRUE(SameBits(session.RunAlone(sequence, chunk), whole)) << chunk;
  }
}

TEST_P(CpuExecutableTest, ASequenceDoesNotDependOnTheBatch) {
  for (const DType element : {DType::kS8, DType::kBf16}) {
    const DecoderShape shape{};
    const Graph graph = MakeDecoder(shape);
    const auto executable = Make(graph, All(element));
    Session session(*executable, shape.vocab);
    std::vector<Session::Sequence> sequences;
    std::vector<std::vector<float>> alone, together(3);
    for (const int64_t tokens : {40, 90, 65}) {
      sequences.push_back(session.NewSequence(tokens, static_cast<uint32_t>(tokens)));
      alone.push_back(session.RunAlone(sequences.back(), 1000));
    }
    // Prefill of one beside decode of the others.
    const std::vector<std::vector<int64_t>> steps = {{39, 50, 1}, {1, 39, 63}};
    const auto append = [&](size_t i, const std::vector<float>& rows) {
      together[i].insert(together[i].end(), rows.begin(), rows.end());
    };
    for (const auto& rows : steps) {
      const auto logits = session.Run({&sequences[0], &sequences[1], &sequences[2]}, rows);
      for (size_t i = 0; i < 3; ++i) append(i, logits[i]);
    }
    const auto logits = session.Run({&sequences[2], &sequences[1]}, {1, 1});
    append(2, logits[0]);
    append(1, logits[1]);
    for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(SameBits(together[i], alone[i])) << i;
  }
}

TEST_P(CpuExecutableTest, OutputRowsAndHiddenStates) {
  const DecoderShape shape{};
  const Graph graph = MakeDecoder(shape);
  const auto executable = Make(graph, All(DType::kS8));
  Session session(*executable, shape.vocab);
  const auto sequence = session.NewSequence(20, 7);
  const std::vector<float> all = session.RunAlone(sequence, 1000);
  const SequenceRows rows{.rows = 20, .rope_length = 20, .block_table = sequence.blocks};
  const std::vector<int32_t> wanted = {3, 19};
  std::vector<int64_t> seen;
  const auto logits = executable->Run(
      {.token_ids = sequence.tokens,
       .sequences = {&rows, 1},
       .output_rows = wanted,
       .on_hidden_state = [&](int64_t layer, const float* values, int64_t count, int64_t width) {
         seen.push_back(layer);
         EXPECT_EQ(count, 20);
         EXPECT_EQ(width, shape.hidden);
         EXPECT_TRUE(std::isfinite(values[count * width - 1]));
       }});
  EXPECT_EQ(seen, (std::vector<int64_t>{0, 1, 2}));
  for (size_t i = 0; i < wanted.size(); ++i) {
    const auto begin = all.begin() + wanted[i] * shape.vocab;
    EXPECT_TRUE(std::equal(begin, begin + shape.vocab,
                           logits.begin() + static_cast<int64_t>(i) * shape.vocab));
  }
  EXPECT_TRUE(
      executable->Run({.token_ids = sequence.tokens, .sequences = {&rows, 1}, .output_rows = {}})
          .empty());
}

std::string ParamName(const ::testing::TestParamInfo<CpuExecutableTest::ParamType>& info) {
  constexpr const char* kNames[] = {"float32", "bfloat16", "float16"};
  return std::string(std::get<0>(info.param)->isa) + "_" +
         kNames[static_cast<size_t>(std::get<1>(info.param))];
}
INSTANTIATE_TEST_SUITE_P(
    EachIsa, CpuExecutableTest,
    ::testing::Combine(::testing::ValuesIn(AllKernelTables().begin(), AllKernelTables().end()),
                       ::testing::Values(ComputeType::kFloat32, ComputeType::kBFloat16,
                                         ComputeType::kFloat16)),
    ParamName);

// What does not depend on the instruction set.
class CpuBackendTest : public ::testing::Test {
 protected:
  CpuBackendTest() : graph_(MakeDecoder(shape_)) {
    executable_ = CompileGraph("cpu", graph_, {.pool = &Pool()});
  }
  // The message of the error of a batch with these tokens and blocks.
  std::string Refusal(const std::vector<int32_t>& tokens, const std::vector<int32_t>& blocks,
                      int64_t rows, const std::vector<int32_t>& output_rows = {0}) {
    const SequenceRows sequence{.rows = rows, .rope_length = rows, .block_table = blocks};
    try {
      executable_->Run(
          {.token_ids = tokens, .sequences = {&sequence, 1}, .output_rows = output_rows});
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      return error.what();
    }
    return "none";
  }

  DecoderShape shape_;
  Graph graph_;
  std::unique_ptr<Executable> executable_;
};

TEST_F(CpuBackendTest, RefusesBatchesThatCannotBeRun) {
  FillWeights(graph_, All(DType::kS8), *executable_);
  executable_->AllocateKvCache(4);
  const std::vector<int32_t> two(2, 1), many(33, 1);
  EXPECT_EQ(Refusal(two, {3}, 2), "none");
  EXPECT_EQ(Refusal({1, 83}, {0}, 2), "forward batch: token id 83 at row 1: expected 0 to 82");
  EXPECT_EQ(Refusal({-1}, {0}, 1), "forward batch: token id -1 at row 0: expected 0 to 82");
  EXPECT_EQ(Refusal(two, {4}, 2), "forward batch: sequence 0: KV block 4 of a cache of 4");
  EXPECT_EQ(Refusal(many, {1}, 33),
            "forward batch: sequence 0: 33 tokens need 2 KV blocks, its table has 1");
  EXPECT_EQ(Refusal(two, {1}, 1),
            "forward batch: the sequences have 1 rows, but there are 2 tokens");
  EXPECT_EQ(Refusal(two, {1}, 2, {1, 1}),
            "forward batch: output row 1 after 1: expected ascending rows below 2");
  EXPECT_EQ(Refusal(two, {1}, 2, {2}),
            "forward batch: output row 2 after -1: expected ascending rows below 2");
}

TEST_F(CpuBackendTest, NoticesMissingRows) {
  const std::vector<char> zeros(16 * 1024, 0);
  for (WeightId id = 0; id < static_cast<WeightId>(graph_.weights().size()); ++id) {
    executable_->BeginWeight(id, WeightFormat::Plain(DType::kF32));
  }
  executable_->PutPanel(0, {0, 16, zeros.data(), nullptr});
  try {
    executable_->EndWeights();
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInternal);
    EXPECT_STREQ(error.what(), "embed.weight: 16 of 83 rows were loaded");
  }
  EXPECT_THROW(executable_->PutPanel(0, {8, 16, zeros.data(), nullptr}), Error);
  EXPECT_THROW(executable_->PutPanel(0, {80, 16, zeros.data(), nullptr}), Error);
  EXPECT_THROW(executable_->Run({}), Error) << "a batch before all weights are there";
}

TEST_F(CpuBackendTest, RefusesFormatsWithoutAKernel) {
  try {
    executable_->BeginWeight(0, WeightFormat::Plain(DType::kF8E4M3));
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnimplemented);
    EXPECT_NE(std::string(error.what()).find("embed.weight"), std::string::npos) << error.what();
  }
}

TEST_F(CpuBackendTest, Info) {
  FillWeights(
      graph_,
      [](const WeightDecl& decl, WeightId) {
        return decl.role == WeightRole::kLinear ? DType::kS8 : DType::kBf16;
      },
      *executable_);
  const ExecutableInfo info = executable_->Info();
  EXPECT_EQ(info.isa, HostKernels().isa);
  const auto name = [](LinearFormat format) {
    return std::string(HostKernels().linear[static_cast<int>(format)][1].name);
  };
  EXPECT_EQ(info.kernels,
            (std::vector<std::string>{name(LinearFormat::kS8Channel), name(LinearFormat::kBf16)}));
  // The embedding is looked up, all the rest is read in every step.
  const uint64_t embedding = static_cast<uint64_t>(shape_.vocab * shape_.hidden) * 2;
  EXPECT_EQ(info.streamed_bytes, info.weight_bytes - embedding);
  uint64_t stored = 0;
  for (const WeightDecl& decl : graph_.weights()) {
    const bool linear = decl.role == WeightRole::kLinear;
    stored += static_cast<uint64_t>(
        StoredBytes(linear ? WeightFormat::S8Channel() : WeightFormat::Plain(DType::kBf16),
                    decl.out_features(), decl.in_features()));
  }
  EXPECT_GE(info.weight_bytes, stored);
  EXPECT_LE(info.weight_bytes, stored + stored / 4);  // rows to 16, row sums, vectors in f32
}

TEST_F(CpuBackendTest, MemoryOfTheCacheBecomesResidentWithUse) {
  FillWeights(graph_, All(DType::kS8), *executable_);
  // keys and values, 2 layers, 2 heads of 12, 32 tokens, bf16
  EXPECT_EQ(executable_->KvBytesPerBlock(), 2u * 2 * 2 * 12 * 32 * 2);
  const int64_t blocks = (int64_t{1} << 30) / 6144;
  executable_->AllocateKvCache(blocks);
  const int64_t before = static_cast<int64_t>(ResidentBytes());
  const std::vector<int32_t> one = {1};
  const std::vector<int32_t> last = {static_cast<int32_t>(blocks - 1)};
  EXPECT_EQ(Refusal(one, last, 1), "none");
  const int64_t after = static_cast<int64_t>(ResidentBytes());
  EXPECT_LT(after - before, int64_t{16} << 20);
}

TEST_F(CpuBackendTest, WorkspaceGrowsWithTheBatch) {
  FillWeights(graph_, All(DType::kS8), *executable_);
  const uint64_t one = executable_->WorkspaceBytes(1, 1);
  const uint64_t many = executable_->WorkspaceBytes(512, 1);
  // At least hidden, q, k, v, gate and up, at most all values of a layer.
  EXPECT_GE(many - one, 511u * 4 * (60 + 72 + 24 + 24 + 100 + 100));
  EXPECT_LE(many - one, 511u * 4 * 1500);
}

TEST(CpuGraphTest, ValuesThatAreReadTwiceAndLater) {
  GraphBuilder builder;
  RopeParameters rope;
  rope.rotary_dim = 8;
  const Value x = builder.Embedding("embed", 50, 32);
  const Value turned = builder.Rope(x, 4, 8, rope);  // x is read again below
  const Value twice = builder.Add(turned, turned, "twice");
  const Value normed = builder.RmsNorm(twice, "norm", 1e-6, 1.0f);
  const Value a = builder.Linear(normed, "a", 48);
  const Value b = builder.Linear(normed, "b", 32);
  const Value back = builder.Linear(a, "back", 32);
  const Value sum = builder.Add(back, x, "sum");
  const Value gated =
      builder.GatedActivation(b, sum, op::GatedActivation::Function::kGelu, "gated");
  builder.Logits(builder.SelectRows(builder.Add(gated, normed, "last")), "embed", true);
  builder.SetContextLength(64);
  const Graph graph = builder.Finish();

  const auto cpu = CompileGraph("cpu", graph, {.compute = ComputeType::kFloat32, .pool = &Pool()});
  const auto reference = CompileGraph("reference", graph, {.pool = &Pool()});
  FillWeights(graph, All(DType::kBf16), *cpu);
  FillWeights(graph, All(DType::kBf16), *reference);
  Session on_cpu(*cpu, 50), on_reference(*reference, 50);
  for (const int64_t tokens : {1, 61}) {
    EXPECT_LE(LargestDifference(on_cpu.RunAlone(on_cpu.NewSequence(tokens, 4), 1000),
                                on_reference.RunAlone(on_reference.NewSequence(tokens, 4), 1000)),
              2e-5);
  }
}

}  // namespace
}  // namespace octavo::testing
