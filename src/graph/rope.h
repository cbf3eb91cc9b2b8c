// Rotary frequencies as transformers computes them (modeling_rope_utils.py), shared by all
// backends.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "graph/op.h"

namespace octavo {

// "default", "linear", ...: the rope_type of a config.
const char* Name(RopeType type);
std::optional<RopeType> RopeTypeFromName(std::string_view name);

// What is wrong with the parameters for heads of `head_dim`, naming the field; "" when nothing is.
std::string FindRopeProblem(const RopeParameters& parameters, int64_t head_dim);

struct RopeFrequencies {
  std::vector<float> inverse;     // [rotary_dim / 2]; angle i of position p is p * inverse[i]
  float attention_factor = 1.0f;  // multiplies cosines and sines
};

// The frequencies for a sequence of `sequence_length` tokens (prompt and what follows so far). Only
// dynamic and longrope depend on it.
RopeFrequencies ComputeRopeFrequencies(const RopeParameters& parameters, int64_t sequence_length);
// Whether the frequencies change with the sequence length.
bool DependsOnLength(const RopeParameters& parameters);

}  // namespace octavo
