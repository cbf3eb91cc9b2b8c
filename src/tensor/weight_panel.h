// A run of complete output rows of one weight, on its way from a scheme into a backend.
#pragma once

#include <cstdint>

namespace octavo {

struct WeightPanel {
  int64_t row_begin = 0;  // first output row
  int64_t rows = 0;
  const void* values =
      nullptr;  // [rows, in_features] of WeightFormat::element, row-major, contiguous
  const float* scales =
      nullptr;  // per channel: [rows]; per block: [rows, ceil(in/block)]; else null
};

}  // namespace octavo
