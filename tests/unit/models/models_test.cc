// The model files read config.json as transformers does: the fixtures' configs in both spellings,
// the defaults of each family, and values that make no sense.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <octavo/error.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "models/registry.h"
#include "test_support.h"

namespace octavo {
namespace {

using Json = nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

Json FixtureConfig(const std::string& name) {
  return Json::parse(testing::ReadWholeFile(testing::FixturePath("arch/" + name + "/config.json")));
}

Graph Build(const Json& config) {
  return BuildModel(HfConfig::FromText(config.dump(), "dir/config.json"));
}

// The fixture's config with one field changed; a null removes nothing, it is a value.
Json With(Json config, const std::string& field, const Json& value) {
  config[Json::json_pointer("/" + field)] = value;
  return config;
}

Json Without(Json config, const std::vector<std::string>& fields) {
  for (const std::string& field : fields) config.erase(field);
  return config;
}

void ExpectRefused(const Json& config, ErrorCode code, const std::string& field,
                   const std::string& part = "") {
  try {
    Build(config);
    ADD_FAILURE() << "no error about " << field;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("dir/config.json"), HasSubstr(field), HasSubstr(part)));
  }
}

std::vector<int64_t> Windows(const Graph& graph) {
  std::vector<int64_t> windows;
  for (const Node& node : graph.nodes()) {
    if (const auto* attention = std::get_if<op::Attention>(&node.op)) {
      windows.push_back(attention->window);
    }
  }
  return windows;
}

class FixtureModel : public ::testing::TestWithParam<const char*> {};

TEST_P(FixtureModel, BothSpellingsGiveTheSameModel) {
  const std::string directory = testing::FixturePath(std::string("arch/") + GetParam());
  const std::string text = Dump(BuildModel(HfConfig::FromFile(directory + "/config.json")));
  EXPECT_EQ(text, Dump(BuildModel(HfConfig::FromFile(directory + "/config.v4.json"))));
  EXPECT_THAT(text, HasSubstr("model.layers.1.mlp.down_proj.weight"));
}

INSTANTIATE_TEST_SUITE_P(Fixtures, FixtureModel,
                         ::testing::Values("llama_bias", "llama_dynamic", "llama_f32", "llama_gqa",
                                           "llama_linear", "llama_tied", "llama_yarn", "mistral",
                                           "mistral_f16", "qwen2", "qwen2_sliding", "qwen3"),
                         [](const auto& test) { return std::string(test.param); });

TEST(Models, HiddenStatesAndKvLayersFollowTheLayers) {
  const Graph graph = Build(FixtureConfig("qwen2_sliding"));
  EXPECT_EQ(graph.kv_layers(), 4);
  EXPECT_EQ(graph.hidden_states().size(), 5u);
}

TEST(Models, RopeOfATransformers4ConfigUnderItsOlderKey) {
  Json config = Without(FixtureConfig("llama_linear"), {"rope_parameters"});
  config["rope_theta"] = 10000.0;
  config["rope_scaling"] = {{"type", "linear"}, {"factor", 4.0}};
  EXPECT_EQ(Dump(Build(config)), Dump(Build(FixtureConfig("llama_linear"))));
}

TEST(Models, RopeDefaults) {
  const Json config = Without(FixtureConfig("llama_bias"), {"rope_parameters"});
  EXPECT_THAT(Dump(Build(config)), HasSubstr("rope 0: default, theta 10000, rotary_dim 16\n"));
  const Json yarn =
      With(Without(config, {"rope_theta"}), "rope_scaling",
           {{"rope_type", "yarn"}, {"factor", nullptr}, {"original_max_position_embeddings", 64}});
  EXPECT_EQ(Build(yarn).ropes()[0].factor, 4.0);  // 256 / 64
  // Beside the rope settings it has the last word, as Phi-3 writes it.
  EXPECT_EQ(Build(With(yarn, "original_max_position_embeddings", 128)).ropes()[0].factor, 2.0);
}

TEST(Models, HeadsAndHeadDimDefaults) {
  const Json llama = Without(FixtureConfig("llama_bias"), {"head_dim", "num_key_value_heads"});
  EXPECT_THAT(Dump(Build(llama)), HasSubstr("heads 4, kv_heads 4, head_dim 16, scale 0.25"));
  // Qwen3 takes 128, whatever the hidden size.
  const Json qwen3 = Without(FixtureConfig("qwen3"), {"head_dim"});
  EXPECT_THAT(Dump(Build(qwen3)), HasSubstr("head_dim 128"));
}

TEST(Models, TiedOnlyWhenTheConfigSaysSo) {
  for (const char* name : {"llama_tied", "qwen2"}) {
    EXPECT_THAT(Dump(Build(FixtureConfig(name))), Not(HasSubstr("lm_head.weight")));
    // The configuration classes of all four families have false where the key is absent.
    const Json silent = Without(FixtureConfig(name), {"tie_word_embeddings"});
    EXPECT_THAT(Dump(Build(silent)), HasSubstr("lm_head.weight"));
  }
}

TEST(Models, Biases) {
  const std::string llama = Dump(Build(FixtureConfig("llama_bias")));
  for (const char* bias : {"q_proj.bias", "o_proj.bias", "gate_proj.bias", "down_proj.bias"}) {
    EXPECT_THAT(llama, HasSubstr(bias));
  }
  const std::string qwen2 = Dump(Build(FixtureConfig("qwen2")));
  EXPECT_THAT(qwen2, AllOf(HasSubstr("v_proj.bias"), Not(HasSubstr("o_proj.bias"))));
  const Json qwen3 = With(FixtureConfig("qwen3"), "attention_bias", true);
  EXPECT_THAT(Dump(Build(qwen3)), HasSubstr("o_proj.bias"));
}

TEST(Models, MistralWindow) {
  const Json config = FixtureConfig("mistral");
  EXPECT_EQ(Windows(Build(config)), (std::vector<int64_t>{16, 16}));
  EXPECT_EQ(Windows(Build(With(config, "sliding_window", nullptr))), (std::vector<int64_t>{0, 0}));
  EXPECT_EQ(Windows(Build(Without(config, {"sliding_window"}))),
            (std::vector<int64_t>{4096, 4096}));
}

TEST(Models, QwenWindows) {
  const Json config = FixtureConfig("qwen2_sliding");
  const std::vector<int64_t> upper_half = {0, 0, 16, 16};
  EXPECT_EQ(Windows(Build(config)), upper_half);
  const Json untyped = Without(config, {"layer_types"});
  EXPECT_EQ(Windows(Build(untyped)), upper_half);
  const std::vector<int64_t> none(4, 0);
  EXPECT_EQ(Windows(Build(With(untyped, "use_sliding_window", false))), none);
  EXPECT_EQ(Windows(Build(With(untyped, "sliding_window", nullptr))), none);
  EXPECT_EQ(Windows(Build(With(untyped, "max_window_layers", 28))), none);
  // layer_types decide, not max_window_layers.
  EXPECT_EQ(Windows(Build(With(config, "layer_types/0", "sliding_attention"))),
            (std::vector<int64_t>{16, 0, 16, 16}));
  ExpectRefused(With(config, "use_sliding_window", false), ErrorCode::kInvalidArgument,
                "layer_types", "layer 2");
  ExpectRefused(With(config, "num_hidden_layers", 3), ErrorCode::kInvalidArgument, "layer_types",
                "expected 3");
  ExpectRefused(With(config, "layer_types/1", "chunked_attention"), ErrorCode::kUnimplemented,
                "layer_types[1]", "chunked_attention");
}

TEST(Models, Activations) {
  const Json config = FixtureConfig("llama_f32");
  EXPECT_THAT(Dump(Build(With(config, "hidden_act", "gelu"))), HasSubstr(", gelu)"));
  EXPECT_THAT(Dump(Build(With(config, "hidden_act", "gelu_pytorch_tanh"))),
              HasSubstr(", gelu_tanh)"));
  EXPECT_THAT(Dump(Build(With(config, "hidden_act", "relu"))), HasSubstr(", relu)"));
  ExpectRefused(With(config, "hidden_act", "quick_gelu"), ErrorCode::kUnimplemented, "hidden_act",
                "quick_gelu");
}

TEST(Models, NonsenseIsRefusedByField) {
  const Json config = FixtureConfig("llama_gqa");
  const int64_t huge = int64_t{1} << 40;
  for (const char* field :
       {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
        "num_attention_heads", "num_key_value_heads", "head_dim", "max_position_embeddings"}) {
    for (const Json& value : {Json(0), Json(-3), Json(huge), Json(1.5), Json("64"), Json(true)}) {
      ExpectRefused(With(config, field, value), ErrorCode::kInvalidArgument, field);
    }
  }
  for (const char* field : {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
                            "num_attention_heads"}) {
    ExpectRefused(Without(config, {field}), ErrorCode::kInvalidArgument, field);
  }
  const ErrorCode invalid = ErrorCode::kInvalidArgument;
  ExpectRefused(With(config, "num_key_value_heads", 3), invalid, "num_key_value_heads", "found 3");
  ExpectRefused(With(config, "num_key_value_heads", 8), invalid, "num_key_value_heads", "found 8");
  ExpectRefused(With(config, "head_dim", 15), invalid, "head_dim", "found 15");
  ExpectRefused(With(Without(config, {"head_dim"}), "hidden_size", 66), invalid, "hidden_size",
                "found 66");
  ExpectRefused(With(config, "rms_norm_eps", -1.0), invalid, "rms_norm_eps");
  ExpectRefused(With(config, "tie_word_embeddings", "yes"), invalid, "tie_word_embeddings");
  ExpectRefused(With(config, "attention_bias", 1), invalid, "attention_bias");
  ExpectRefused(With(FixtureConfig("mistral"), "sliding_window", 0), invalid, "sliding_window");
}

TEST(Models, NonsenseInRopeSettingsIsRefusedByField) {
  const ErrorCode invalid = ErrorCode::kInvalidArgument;
  const Json llama3 = FixtureConfig("llama_gqa");
  for (const char* field : {"factor", "low_freq_factor", "high_freq_factor", "rope_theta"}) {
    for (const Json& value : {Json(0.0), Json(-1), Json("8")}) {
      ExpectRefused(With(llama3, std::string("rope_parameters/") + field, value), invalid,
                    std::string("rope_parameters.") + field);
    }
  }
  ExpectRefused(With(llama3, "rope_parameters/high_freq_factor", 1.0), invalid, "high_freq_factor");
  Json missing = llama3;
  missing["rope_parameters"].erase("low_freq_factor");
  ExpectRefused(missing, invalid, "rope_parameters.low_freq_factor");
  ExpectRefused(With(llama3, "rope_parameters", "llama3"), invalid, "rope_parameters");
  ExpectRefused(With(llama3, "rope_parameters/rope_type", "spiral"), ErrorCode::kUnimplemented,
                "rope_parameters.rope_type", "spiral");
  ExpectRefused(With(llama3, "rope_parameters/full_attention", Json::object()),
                ErrorCode::kUnimplemented, "rope_parameters.full_attention");
  ExpectRefused(With(llama3, "partial_rotary_factor", 0.5), invalid, "partial_rotary_factor");
  ExpectRefused(With(FixtureConfig("llama_yarn"), "rope_parameters/rope_theta", 1.0), invalid,
                "rope_theta", "above 1");
  const Json longrope = With(llama3, "rope_parameters",
                             {{"rope_type", "longrope"},
                              {"short_factor", Json::array({1.0, 1.0})},
                              {"long_factor", Json::array({1.0, 1.0})},
                              {"original_max_position_embeddings", 32}});
  ExpectRefused(longrope, invalid, "short_factor", "expected 8");
  Json flat = longrope;
  flat["rope_parameters"]["short_factor"] = flat["rope_parameters"]["long_factor"] =
      std::vector<double>(8, 1.0);
  EXPECT_EQ(Build(flat).ropes()[0].factor, 8.0);  // 256 / 32
  flat["rope_parameters"]["original_max_position_embeddings"] = 1;
  ExpectRefused(flat, invalid, "longrope", "not finite");
}

TEST(Models, AnUnknownArchitectureListsTheOthersNearestFirst) {
  Json config = FixtureConfig("llama_f32");
  config["architectures"] = {"Qwen4ForCausalLM"};
  ExpectRefused(config, ErrorCode::kUnimplemented, "Qwen4ForCausalLM",
                "supported are Qwen2ForCausalLM, Qwen3ForCausalLM, LlamaForCausalLM");
  config["architectures"] = {"FrobnicateForCausalLM"};
  ExpectRefused(config, ErrorCode::kUnimplemented, "FrobnicateForCausalLM", "LlamaForCausalLM");
  config["architectures"] = {std::string(100000, 'L') + "\x1b[2J"};
  ExpectRefused(config, ErrorCode::kUnimplemented, "LLLL");
  config["architectures"] = Json::array();
  ExpectRefused(config, ErrorCode::kInvalidArgument, "architectures");
  ExpectRefused(Without(config, {"architectures"}), ErrorCode::kInvalidArgument, "architectures");
}

TEST(Models, SupportedArchitectures) {
  EXPECT_THAT(SupportedArchitectures(),
              ::testing::ElementsAre("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM",
                                     "Qwen3ForCausalLM"));
}

}  // namespace
}  // namespace octavo
