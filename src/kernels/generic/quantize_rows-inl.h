// quantize_rows_s8 (kernel_table.h) over a vector type V (vec_*.h) and its writer of codes C.
// Float32 throughout, each operation rounded by itself, so that the codes are the same on every
// instruction set.
#pragma once

#include <cstdint>
#include <cstring>

#include "tensor/dtype.h"

namespace octavo {
namespace {

template <typename V, typename C>
struct QuantizeRows {
  using F = typename V::F;
  static constexpr int64_t kLanes = V::kLanes;

  template <DType dtype>
  static F Load(const char* source, int64_t index) {
    if constexpr (dtype == DType::kBf16) {
      return V::LoadBf16(reinterpret_cast<const uint16_t*>(source + index * 2));
    } else if constexpr (dtype == DType::kF16) {
      return V::LoadF16(reinterpret_cast<const uint16_t*>(source + index * 2));
    } else {
      return V::Load(reinterpret_cast<const float*>(source + index * 4));
    }
  }

  // The last, incomplete vector of a row, padded with zeros.
  template <DType dtype>
  static F LoadTail(const char* source, int64_t index, int64_t count) {
    constexpr int64_t kBytes = dtype == DType::kF32 ? 4 : 2;
    alignas(64) char padded[kLanes * kBytes] = {};
    std::memcpy(padded, source + index * kBytes, static_cast<size_t>(count * kBytes));
    return Load<dtype>(padded, 0);
  }

  // Largest magnitude of [k]; negative when a NaN or infinity is among them.
  template <DType dtype>
  static float LargestMagnitude(const char* source, int64_t k) {
    F largest[4] = {V::Zero(), V::Zero(), V::Zero(), V::Zero()};
    F poison[4] = {V::Zero(), V::Zero(), V::Zero(), V::Zero()};  // NaN once a value was not finite
    const auto take = [&](F value, int i) {
      largest[i] = V::Max(V::Abs(value), largest[i]);
      poison[i] = V::MulAdd(value, V::Zero(), poison[i]);
    };
    int64_t column = 0;
    for (; column + 4 * kLanes <= k; column += 4 * kLanes) {
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) take(Load<dtype>(source, column + i * kLanes), i);
    }
    for (; column + kLanes <= k; column += kLanes) take(Load<dtype>(source, column), 0);
    if (column < k) take(LoadTail<dtype>(source, column, k - column), 0);
    const float sum = V::Sum(V::Add(V::Add(poison[0], poison[1]), V::Add(poison[2], poison[3])));
    if (sum != 0.0f) return -1.0f;
    return V::Largest(V::Max(V::Max(largest[0], largest[1]), V::Max(largest[2], largest[3])));
  }

  template <DType dtype>
  static void QuantizeRow(const char* source, int64_t k, float inverse, int8_t* q) {
    const F factor = V::Set(inverse);
    int64_t column = 0;
    for (; column + 4 * kLanes <= k; column += 4 * kLanes) {
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        const int64_t at = column + i * kLanes;
        C::Store(q + at, V::Mul(Load<dtype>(source, at), factor));
      }
    }
    for (; column + kLanes <= k; column += kLanes) {
      C::Store(q + column, V::Mul(Load<dtype>(source, column), factor));
    }
    if (column < k) {
      int8_t codes[kLanes];
      C::Store(codes, V::Mul(LoadTail<dtype>(source, column, k - column), factor));
      std::memcpy(q + column, codes, static_cast<size_t>(k - column));
    }
  }

  template <DType dtype>
  static int64_t RunAs(const char* source, int64_t rows, int64_t k, int8_t* q, float* scales) {
    constexpr int64_t kBytes = dtype == DType::kF32 ? 4 : 2;
    for (int64_t row = 0; row < rows; ++row) {
      const char* values = source + row * k * kBytes;
      const float largest = LargestMagnitude<dtype>(values, k);
      if (largest < 0.0f) return row;
      const float scale = (largest > 1e-5f ? largest : 1e-5f) / 127.0f;
      scales[row] = scale;
      QuantizeRow<dtype>(values, k, 1.0f / scale, q + row * k);
    }
    return -1;
  }

  static int64_t Run(DType dtype, const void* source, int64_t rows, int64_t k, int8_t* q,
                     float* scales) {
    const char* bytes = static_cast<const char*>(source);
    switch (dtype) {
      case DType::kBf16:
        return RunAs<DType::kBf16>(bytes, rows, k, q, scales);
      case DType::kF16:
        return RunAs<DType::kF16>(bytes, rows, k, q, scales);
      default:
        return RunAs<DType::kF32>(bytes, rows, k, q, scales);
    }
  }
};

}  // namespace
}  // namespace octavo
