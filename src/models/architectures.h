// The build functions of the architectures, one per model file. Each records the model that
// config.json describes and throws kInvalidArgument naming a field that cannot be used.
#pragma once

#include "checkpoint/hf_config.h"
#include "graph/graph.h"

namespace octavo {

Graph BuildLlama(const HfConfig& config);    // llama.cc
Graph BuildMistral(const HfConfig& config);  // mistral.cc
Graph BuildQwen2(const HfConfig& config);    // qwen2.cc
Graph BuildQwen3(const HfConfig& config);    // qwen3.cc

}  // namespace octavo
