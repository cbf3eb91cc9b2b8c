#include "tensor/weight_format.h"

#include <fmt/format.h>

namespace octavo {

std::string ToString(const WeightFormat& format) {
  switch (format.granularity) {
    case Granularity::kNone:
      return Name(format.element);
    case Granularity::kTensor:
      return fmt::format("{} per tensor ({} scale)", Name(format.element), Name(format.scale));
    case Granularity::kChannel:
      return fmt::format("{} per channel ({} scales)", Name(format.element), Name(format.scale));
    case Granularity::kBlock:
      return fmt::format("{} blocks of {} ({} scales)", Name(format.element), format.block,
                         Name(format.scale));
  }
  return "?";
}

int64_t StoredBytes(const WeightFormat& format, int64_t out_features, int64_t in_features) {
  int64_t scales = 0;
  switch (format.granularity) {
    case Granularity::kNone:
      break;
    case Granularity::kTensor:
      scales = 1;
      break;
    case Granularity::kChannel:
      scales = out_features;
      break;
    case Granularity::kBlock:
      scales = out_features * ((in_features + format.block - 1) / format.block);
      break;
  }
  return out_features * in_features * ByteSize(format.element) + scales * ByteSize(format.scale);
}

}  // namespace octavo
