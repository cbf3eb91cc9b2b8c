#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace octavo {

using Shape = std::vector<int64_t>;  // row-major, outermost first

std::string ToString(const Shape& shape);  // "[64, 112]"
// The number of elements; nullopt when a dimension is negative or the product passes 63 bits.
std::optional<int64_t> ElementCount(const Shape& shape);

}  // namespace octavo
