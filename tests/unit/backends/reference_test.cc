// What the reference backend refuses: an oracle must not accept a mistake of its caller.
#include <gtest/gtest.h>

#include <vector>

#include "backends/backend.h"
#include "expect_error.h"
#include "graph/graph_builder.h"

namespace octavo::testing {
namespace {

// embedding [4, 2] -> attention of one head -> head [4, 2]; weights 0 and 1.
Graph TinyGraph() {
  GraphBuilder graph;
  const Value x = graph.Embedding("embed", 4, 2);
  const Value y = graph.Attention(x, x, x, {.heads = 1, .kv_heads = 1, .head_dim = 2}, "attn");
  graph.Logits(graph.SelectRows(y), "lm_head", /*tied_to_embedding=*/false);
  graph.SetContextLength(64);
  return graph.Finish();
}

const std::vector<float> kTable = {1, 0, 0, 1, 2, 0, 0, 2};  // [4, 2]

std::unique_ptr<Executable> LoadedReference() {
  auto executable = CompileGraph("reference", TinyGraph(), {});
  for (const WeightId id : {0, 1}) {
    executable->BeginWeight(id, WeightFormat::Plain(DType::kF32));
    executable->PutPanel(id, {.row_begin = 0, .rows = 4, .values = kTable.data()});
  }
  executable->EndWeights();
  executable->AllocateKvCache(2);
  return executable;
}

TEST(Backends, AnUnknownNameListsTheOthers) {
  ExpectError(ErrorCode::kInvalidArgument, {"abacus", "cpu", "reference"},
              [] { CompileGraph("abacus", TinyGraph(), {}); });
}

TEST(Reference, ComputesByHand) {
  auto executable = LoadedReference();
  const std::vector<int32_t> tokens = {2, 1};
  const std::vector<int32_t> blocks = {1};
  const SequenceRows rows{.rows = 2, .rope_length = 2, .block_table = blocks};
  const std::vector<int32_t> wanted = {0};
  const auto logits =
      executable->Run({.token_ids = tokens, .sequences = {&rows, 1}, .output_rows = wanted});
  // The first token sees itself alone: its row (2, 0) times the head.
  EXPECT_EQ(std::vector<float>(logits.begin(), logits.end()), (std::vector<float>{2, 0, 4, 0}));
}

TEST(Reference, DequantizesInt8PerChannel) {
  auto executable = CompileGraph("reference", TinyGraph(), {});
  executable->BeginWeight(0, WeightFormat::Plain(DType::kF32));
  executable->PutPanel(0, {.row_begin = 0, .rows = 4, .values = kTable.data()});
  executable->BeginWeight(1, WeightFormat::S8Channel());
  const std::vector<int8_t> codes = {127, 0, -64, 3, 0, 0, 1, 1};  // [4, 2]
  const std::vector<float> scales = {0.5f, 0.25f, 1.0f, 2.0f};
  executable->PutPanel(
      1, {.row_begin = 0, .rows = 4, .values = codes.data(), .scales = scales.data()});
  executable->EndWeights();
  executable->AllocateKvCache(1);
  const std::vector<int32_t> tokens = {0};
  const std::vector<int32_t> blocks = {0};
  const SequenceRows rows{.rows = 1, .rope_length = 1, .block_table = blocks};
  const std::vector<int32_t> wanted = {0};
  const auto logits =
      executable->Run({.token_ids = tokens, .sequences = {&rows, 1}, .output_rows = wanted});
  EXPECT_EQ(std::vector<float>(logits.begin(), logits.end()),
            (std::vector<float>{63.5f, -16, 0, 2}));
}

TEST(Reference, RefusesAFormatThatItCannotDequantize) {
  auto executable = CompileGraph("reference", TinyGraph(), {});
  ExpectError(ErrorCode::kUnimplemented, {"lm_head.weight", "s8", "block"}, [&] {
    executable->BeginWeight(
        1, {.element = DType::kS8, .granularity = Granularity::kBlock, .block = 32});
  });
}

TEST(Reference, RefusesIncompleteWeights) {
  auto executable = CompileGraph("reference", TinyGraph(), {});
  executable->BeginWeight(0, WeightFormat::Plain(DType::kF32));
  executable->PutPanel(0, {.row_begin = 0, .rows = 3, .values = kTable.data()});
  ExpectError(ErrorCode::kInternal, {"embed.weight", "expected 4", "3 arrived"},
              [&] { executable->EndWeights(); });
  ExpectError(ErrorCode::kInternal, {"embed.weight", "rows [3, 5)"}, [&] {
    executable->PutPanel(0, {.row_begin = 3, .rows = 2, .values = kTable.data()});
  });
}

TEST(Reference, RefusesBatchesThatBreakTheContract) {
  auto executable = LoadedReference();
  const auto run = [&](std::vector<int32_t> tokens, std::vector<int32_t> blocks, int64_t rows,
                       std::vector<int32_t> wanted) {
    const SequenceRows sequence{.rows = rows, .rope_length = rows, .block_table = blocks};
    executable->Run({.token_ids = tokens, .sequences = {&sequence, 1}, .output_rows = wanted});
  };
  run({3}, {0}, 1, {0});
  ExpectError(ErrorCode::kInternal, {"token id 4"}, [&] { run({4}, {0}, 1, {0}); });
  ExpectError(ErrorCode::kInternal, {"output row 1 of 1"}, [&] { run({3}, {0}, 1, {1}); });
  ExpectError(ErrorCode::kInternal, {"KV block 2 of 2"}, [&] { run({3}, {2}, 1, {0}); });
  ExpectError(ErrorCode::kInternal, {"0 KV blocks for 1"}, [&] { run({3}, {}, 1, {0}); });
  ExpectError(ErrorCode::kInternal, {"1 tokens", "2 rows"}, [&] { run({3}, {0}, 2, {0}); });
}

TEST(Reference, CountsItsMemory) {
  auto executable = LoadedReference();
  EXPECT_EQ(executable->Info().weight_bytes, 2u * 8 * sizeof(float));
  EXPECT_EQ(executable->Info().streamed_bytes, 8u * sizeof(float));
  EXPECT_EQ(executable->KvBytesPerBlock(), 2u * kKvBlockTokens * 2 * sizeof(float));
  // The embedding's and attention's [5, 2]; the logits [1, 4] come later.
  EXPECT_EQ(executable->WorkspaceBytes(5, 1), 20u * sizeof(float));
}

}  // namespace
}  // namespace octavo::testing
