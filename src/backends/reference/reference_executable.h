// The oracle: runs a graph node by node in float32, as simply as it can be written. Every other
// backend is tested against it.
#pragma once

#include <memory>

#include "backends/backend.h"

namespace octavo {

// Weights are dequantized to float32 when they arrive, and activations are float32 whatever
// options.compute says. Weights of a format that it cannot dequantize are kUnimplemented.
std::unique_ptr<Executable> MakeReferenceExecutable(const Graph& graph,
                                                    const CompileOptions& options);

}  // namespace octavo
