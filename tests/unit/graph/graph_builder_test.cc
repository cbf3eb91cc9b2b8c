#include "graph/graph_builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <octavo/error.h>

#include <functional>
#include <string>

#include "graph/shape_rules.h"

namespace octavo {
namespace {

RopeParameters PlainRope(int64_t rotary_dim) {
  RopeParameters rope;
  rope.rotary_dim = rotary_dim;
  return rope;
}

// Runs `build` and checks the error that it must throw.
void ExpectError(ErrorCode code, const std::string& part, const std::function<void()>& build) {
  try {
    build();
    ADD_FAILURE() << "no error about " << part;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_THAT(error.what(), ::testing::HasSubstr(part));
  }
}

// One layer of attention and gated MLP; `tied` decides about the head.
Graph SmallModel(bool tied) {
  GraphBuilder graph;
  Value x = graph.Embedding("embed", 32, 8);
  graph.MarkHiddenState(x);
  const Value h = graph.RmsNorm(x, "norm", 1e-5);
  Value q = graph.Linear(h, "attn.q_proj", 16, /*bias=*/true);
  Value k = graph.Linear(h, "attn.k_proj", 8);
  const Value v = graph.Linear(h, "attn.v_proj", 8);
  q = graph.HeadRmsNorm(q, "attn.q_norm", 4, 1e-5);
  q = graph.Rope(q, 4, 4, PlainRope(4));
  k = graph.Rope(k, 2, 4, PlainRope(4));
  const Value mixed =
      graph.Attention(q, k, v, {.heads = 4, .kv_heads = 2, .head_dim = 4, .window = 16}, "attn");
  x = graph.Add(x, graph.Linear(mixed, "attn.o_proj", 8), "residual");
  const Value gate = graph.Linear(x, "mlp.gate_proj", 24);
  const Value up = graph.Linear(x, "mlp.up_proj", 24);
  const Value act =
      graph.GatedActivation(gate, up, op::GatedActivation::Function::kGeluTanh, "mlp.act");
  x = graph.Add(x, graph.Linear(act, "mlp.down_proj", 8), "residual");
  graph.MarkHiddenState(x);
  graph.Logits(graph.SelectRows(x), "lm_head", tied);
  graph.SetContextLength(64);
  graph.IgnoreSuffix("inv_freq");
  return graph.Finish();
}

TEST(GraphBuilder, Dump) {
  EXPECT_EQ(Dump(SmallModel(/*tied=*/false)),
            "rope 0: default, theta 10000, rotary_dim 4\n"
            "%0 [tokens, 8] = embedding(embed.weight [32, 8])\n"
            "%1 [tokens, 8] = rms_norm(%0, norm.weight [8], eps 1e-05)\n"
            "%2 [tokens, 16] = linear(%1, attn.q_proj.weight [16, 8], attn.q_proj.bias [16])\n"
            "%3 [tokens, 8] = linear(%1, attn.k_proj.weight [8, 8])\n"
            "%4 [tokens, 8] = linear(%1, attn.v_proj.weight [8, 8])\n"
            "%5 [tokens, 16] = rms_norm(%2, attn.q_norm.weight [4], eps 1e-05, group 4)\n"
            "%6 [tokens, 16] = rope(%5, heads 4, head_dim 4, rope 0)\n"
            "%7 [tokens, 8] = rope(%3, heads 2, head_dim 4, rope 0)\n"
            "%8 [tokens, 16] = attention(%6, %7, %4, kv_layer 0, heads 4, kv_heads 2, head_dim 4, "
            "scale 0.5, window 16)\n"
            "%9 [tokens, 8] = linear(%8, attn.o_proj.weight [8, 16])\n"
            "%10 [tokens, 8] = add(%0, %9)\n"
            "%11 [tokens, 24] = linear(%10, mlp.gate_proj.weight [24, 8])\n"
            "%12 [tokens, 24] = linear(%10, mlp.up_proj.weight [24, 8])\n"
            "%13 [tokens, 24] = gated_activation(%11, %12, gelu_tanh)\n"
            "%14 [tokens, 8] = linear(%13, mlp.down_proj.weight [8, 24])\n"
            "%15 [tokens, 8] = add(%10, %14)\n"
            "%16 [selected, 8] = select_rows(%15)\n"
            "%17 [selected, 32] = linear(%16, lm_head.weight [32, 8])\n"
            "logits %17, vocabulary 32, context 64\n");
}

TEST(GraphBuilder, FactsOfTheGraph) {
  const Graph graph = SmallModel(/*tied=*/false);
  EXPECT_EQ(graph.vocab_size(), 32);
  EXPECT_EQ(graph.context_length(), 64);
  EXPECT_EQ(graph.kv_layers(), 1);
  EXPECT_EQ(graph.ropes().size(), 1u);  // equal parameters are one entry
  EXPECT_EQ(graph.hidden_states().size(), 2u);
  EXPECT_EQ(graph.info(graph.logits()).rows, Rows::kSelected);
  EXPECT_TRUE(graph.IsIgnorable("model.layers.0.rotary_emb.inv_freq"));
  EXPECT_FALSE(graph.IsIgnorable("inv_freq.weight"));
  const auto role_of = [&](const std::string& name) {
    for (const WeightDecl& weight : graph.weights()) {
      if (weight.name == name) return weight.role;
    }
    throw std::runtime_error("no weight " + name);
  };
  EXPECT_EQ(role_of("embed.weight"), WeightRole::kEmbedding);
  EXPECT_EQ(role_of("attn.q_proj.weight"), WeightRole::kLinear);
  EXPECT_EQ(role_of("attn.q_proj.bias"), WeightRole::kVector);
  EXPECT_EQ(role_of("attn.q_norm.weight"), WeightRole::kVector);
  EXPECT_EQ(role_of("lm_head.weight"), WeightRole::kHead);
}

TEST(GraphBuilder, ATiedHeadIsTheEmbedding) {
  const Graph graph = SmallModel(/*tied=*/true);
  EXPECT_TRUE(graph.weight(0).tied_head);
  EXPECT_EQ(std::get<op::Linear>(graph.nodes().back().op).weight, 0);
  for (const WeightDecl& weight : graph.weights()) EXPECT_NE(weight.name, "lm_head.weight");
}

TEST(GraphBuilder, InputsOfAnOp) {
  const Graph graph = SmallModel(/*tied=*/false);
  EXPECT_EQ(Inputs(graph.nodes()[0].op), std::vector<Value>{});
  EXPECT_EQ(Inputs(graph.nodes()[8].op), (std::vector<Value>{{6}, {7}, {4}}));
  EXPECT_EQ(Inputs(graph.nodes()[10].op), (std::vector<Value>{{0}, {9}}));
}

TEST(GraphBuilder, ValuesThatAConfigCanHoldAreInvalidArguments) {
  const ErrorCode invalid = ErrorCode::kInvalidArgument;
  ExpectError(invalid, "vocabulary", [] { GraphBuilder().Embedding("embed", 0, 8); });
  ExpectError(invalid, "embed.weight: the shape",
              [] { GraphBuilder().Embedding("embed", int64_t{1} << 40, int64_t{1} << 30); });
  ExpectError(invalid, "out_features", [] {
    GraphBuilder graph;
    graph.Linear(graph.Embedding("embed", 4, 8), "proj", -1);
  });
  ExpectError(invalid, "head_dim", [] {
    GraphBuilder graph;
    graph.Rope(graph.Embedding("embed", 4, 6), 2, 3, PlainRope(3));
  });
  ExpectError(invalid, "4, is not a multiple of the number of KV heads, 3", [] {
    GraphBuilder graph;
    const Value x = graph.Embedding("embed", 4, 8);
    graph.Attention(x, x, x, {.heads = 4, .kv_heads = 3, .head_dim = 2}, "attn");
  });
}

TEST(GraphBuilder, MistakesOfAModelFileAreInternal) {
  const ErrorCode internal = ErrorCode::kInternal;
  ExpectError(internal, "sum: width: expected 8, found 6", [] {
    GraphBuilder graph;
    const Value x = graph.Embedding("embed", 4, 8);
    graph.Add(x, graph.Linear(x, "proj", 6), "sum");
  });
  ExpectError(internal, "sum: rows: expected tokens, found selected", [] {
    GraphBuilder graph;
    const Value x = graph.Embedding("embed", 4, 8);
    graph.Add(x, graph.SelectRows(x), "sum");
  });
  ExpectError(internal, "attn: width of k: expected 4, found 8", [] {
    GraphBuilder graph;
    const Value x = graph.Embedding("embed", 4, 8);
    graph.Attention(x, x, x, {.heads = 4, .kv_heads = 2, .head_dim = 2}, "attn");
  });
  ExpectError(internal, "norm: width 8 is not a multiple of the group 3", [] {
    GraphBuilder graph;
    graph.HeadRmsNorm(graph.Embedding("embed", 4, 8), "norm", 3, 1e-6);
  });
  ExpectError(internal, "proj.weight is declared twice", [] {
    GraphBuilder graph;
    const Value x = graph.Embedding("embed", 4, 8);
    graph.Linear(x, "proj", 8);
    graph.Linear(x, "proj", 8);
  });
  ExpectError(internal, "there is no value %7", [] {
    GraphBuilder graph;
    graph.Embedding("embed", 4, 8);
    graph.Linear(Value{7}, "proj", 8);
  });
  ExpectError(internal, "no embedding to tie it to",
              [] { GraphBuilder().Logits(Value{}, "lm_head", /*tied_to_embedding=*/true); });
}

TEST(GraphBuilder, AnUnfinishedGraphIsRefused) {
  ExpectError(ErrorCode::kInternal, "no logits", [] { GraphBuilder().Finish(); });
  ExpectError(ErrorCode::kInternal, "not of selected rows", [] {
    GraphBuilder graph;
    graph.Logits(graph.Embedding("embed", 4, 8), "lm_head", false);
    graph.SetContextLength(8);
    graph.Finish();
  });
  ExpectError(ErrorCode::kInternal, "no context length", [] {
    GraphBuilder graph;
    graph.Logits(graph.SelectRows(graph.Embedding("embed", 4, 8)), "lm_head", false);
    graph.Finish();
  });
}

TEST(ShapeRules, WeightsMustFitTheirOps) {
  const Graph graph = SmallModel(/*tied=*/false);
  // The norm's vector where a matrix is needed, and a matrix of other in_features.
  ExpectError(ErrorCode::kInternal, "expected 2 dimensions", [&] {
    InferOutput(op::Linear{Value{0}, 1}, graph, "bad");
  });
  ExpectError(ErrorCode::kInternal, "in_features: expected 8, found 16", [&] {
    InferOutput(op::Linear{Value{2}, 2}, graph, "bad");
  });
  ExpectError(ErrorCode::kInternal, "there is no rope 1", [&] {
    InferOutput(op::Rope{Value{2}, 4, 4, 1}, graph, "bad");
  });
}

}  // namespace
}  // namespace octavo
