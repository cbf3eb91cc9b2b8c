#include "tensor/shape.h"

namespace octavo {

std::string ToString(const Shape& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(shape[i]);
  }
  return text + "]";
}

std::optional<int64_t> ElementCount(const Shape& shape) {
  int64_t count = 1;
  bool overflow = false;
  bool zero = false;
  for (const int64_t dim : shape) {
    if (dim < 0) return std::nullopt;
    zero = zero || dim == 0;
    overflow = overflow || __builtin_mul_overflow(count, dim, &count);
  }
  if (zero) return 0;
  if (overflow) return std::nullopt;
  return count;
}

}  // namespace octavo
