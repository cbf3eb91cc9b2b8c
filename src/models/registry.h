// The architectures Octavo runs. A new one is a file with a build function and a line in
// registry.cc.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/hf_config.h"
#include "graph/graph.h"

namespace octavo {

// Records the model that `config` (config.json) describes. Throws kUnimplemented naming the
// architecture and listing the supported ones, nearest first; kInvalidArgument naming a config
// field that cannot be used.
Graph BuildModel(const HfConfig& config);

std::vector<std::string> SupportedArchitectures();

}  // namespace octavo
