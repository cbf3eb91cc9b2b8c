// What each op makes of its inputs' shapes, and which inputs it accepts.
#pragma once

#include <string>

#include "graph/graph.h"

namespace octavo {

// The shape of `op`'s output in `graph`, which holds its inputs and weights. Throws kInternal
// naming `node` where the inputs do not fit: a mistake of the model file.
ValueInfo InferOutput(const Op& op, const Graph& graph, const std::string& node);

}  // namespace octavo
