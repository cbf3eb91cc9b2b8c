// Makers of the schemes in this folder, one per file, for the table in quant/registry.cc.
#pragma once

#include <memory>

#include "quant/scheme.h"

namespace octavo {

std::unique_ptr<const QuantScheme> MakeInt8Scheme();

}  // namespace octavo
