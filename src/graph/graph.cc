#include "graph/graph.h"

#include <algorithm>

namespace octavo {

bool Graph::IsIgnorable(std::string_view tensor_name) const {
  return std::any_of(ignorable_suffixes_.begin(), ignorable_suffixes_.end(),
                     [&](const std::string& suffix) { return tensor_name.ends_with(suffix); });
}

}  // namespace octavo
