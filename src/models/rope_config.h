// Rotary settings of a config.json, in the keys of transformers 5 and of 4.x.
#pragma once

#include <cstdint>

#include "checkpoint/hf_config.h"
#include "graph/op.h"

namespace octavo {

// Reads `rope_parameters` (transformers 5) or `rope_theta` and `rope_scaling` (4.x; the type under
// `rope_type` or `type`). Throws kInvalidArgument naming the field, kUnimplemented for an unknown
// type.
RopeParameters ReadRopeParameters(const HfConfig& config, int64_t head_dim,
                                  int64_t max_position_embeddings);

}  // namespace octavo
