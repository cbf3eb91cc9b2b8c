// How the values and scales of a weight [out_features, in_features] lie in memory, whoever made
// them: the meeting point of schemes (which produce a format) and kernels (which consume one).
// Knows neither.
#pragma once

#include <cstdint>
#include <string>

#include "tensor/dtype.h"

namespace octavo {

enum class Granularity : uint8_t {
  kNone,     // no scales: the values are the weights
  kTensor,   // one scale
  kChannel,  // one per output row
  kBlock,    // one per `block` input columns of each output row
};

struct WeightFormat {
  DType element = DType::kBf16;
  Granularity granularity = Granularity::kNone;
  int64_t block = 0;          // input columns per scale, kBlock only
  DType scale = DType::kF32;  // type of the scales; w = q * scale

  static WeightFormat Plain(DType element) { return {.element = element}; }
  static WeightFormat S8Channel() {
    return {.element = DType::kS8, .granularity = Granularity::kChannel};
  }

  bool operator==(const WeightFormat&) const = default;
};

// "bf16", "s8 per channel (f32 scales)"
std::string ToString(const WeightFormat& format);
// Bytes of values and scales of an [out_features, in_features] weight, without kernel padding.
int64_t StoredBytes(const WeightFormat& format, int64_t out_features, int64_t in_features);

}  // namespace octavo
