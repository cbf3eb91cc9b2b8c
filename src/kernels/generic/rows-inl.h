// RowKernels (kernel_table.h) over a vector type V.
#pragma once

#include <cstdint>

#include "kernels/generic/math-inl.h"
#include "kernels/kernel_table.h"

namespace octavo {
namespace {

template <typename V>
struct Rows {
  using F = typename V::F;
  static constexpr int64_t kLanes = V::kLanes;

  // Calls body(i, count) for vectors at i; count is kLanes but for the last.
  template <typename Body>
  static void ForEachVector(int64_t width, Body body) {
    int64_t i = 0;
    for (; i + kLanes <= width; i += kLanes) body(i, kLanes);
    if (i < width) body(i, width - i);
  }
  static F LoadUpTo(const float* p, int64_t count) {
    return count == kLanes ? V::Load(p) : V::LoadPart(p, count);
  }
  static void StoreUpTo(float* p, F v, int64_t count) {
    if (count == kLanes) {
      V::Store(p, v);
    } else {
      V::StorePart(p, v, count);
    }
  }

  // Sum of x^2. Four running vectors: sixteen or more partial sums keep the rounding error small
  // and the multiply-add latency hidden.
  static float SumOfSquares(const float* x, int64_t width) {
    F sums[4] = {V::Zero(), V::Zero(), V::Zero(), V::Zero()};
    int64_t i = 0;
    for (; i + 4 * kLanes <= width; i += 4 * kLanes) {
      for (int64_t j = 0; j < 4; ++j) {
        const F v = V::Load(x + i + j * kLanes);
        sums[j] = V::MulAdd(v, v, sums[j]);
      }
    }
    ForEachVector(width - i, [&](int64_t at, int64_t count) {
      const F v = LoadUpTo(x + i + at, count);
      sums[0] = V::MulAdd(v, v, sums[0]);
    });
    return V::Sum(V::Add(V::Add(sums[0], sums[1]), V::Add(sums[2], sums[3])));
  }

  static void RmsNorm(const float* x, const float* weight, float eps, float weight_offset,
                      int64_t width, float* y) {
    const float mean = SumOfSquares(x, width) / static_cast<float>(width);
    const F inverse = V::Set(1.0f / __builtin_sqrtf(mean + eps));
    const F offset = V::Set(weight_offset);
    ForEachVector(width, [&](int64_t i, int64_t count) {
      const F w = V::Add(LoadUpTo(weight + i, count), offset);
      StoreUpTo(y + i, V::Mul(V::Mul(LoadUpTo(x + i, count), inverse), w), count);
    });
  }

  static void Rope(float* x, const float* cosines, const float* sines, int64_t heads,
                   int64_t head_dim, int64_t rotary_dim) {
    const int64_t half = rotary_dim / 2;
    for (int64_t head = 0; head < heads; ++head) {
      float* first = x + head * head_dim;
      float* second = first + half;
      ForEachVector(half, [&](int64_t i, int64_t count) {
        const F c = LoadUpTo(cosines + i, count);
        const F s = LoadUpTo(sines + i, count);
        const F a = LoadUpTo(first + i, count);
        const F b = LoadUpTo(second + i, count);
        StoreUpTo(first + i, V::NegMulAdd(b, s, V::Mul(a, c)), count);
        StoreUpTo(second + i, V::MulAdd(a, s, V::Mul(b, c)), count);
      });
    }
  }

  template <F (*kFunction)(F)>
  static void Gated(const float* gate, const float* up, int64_t width, float* y) {
    ForEachVector(width, [&](int64_t i, int64_t count) {
      const F activated = kFunction(LoadUpTo(gate + i, count));
      StoreUpTo(y + i, V::Mul(activated, LoadUpTo(up + i, count)), count);
    });
  }

  static void GatedActivation(const float* gate, const float* up, Activation activation,
                              int64_t width, float* y) {
    switch (activation) {
      case Activation::kSilu:
        return Gated<Math<V>::Silu>(gate, up, width, y);
      case Activation::kGelu:
        return Gated<Math<V>::Gelu>(gate, up, width, y);
      case Activation::kGeluTanh:
        return Gated<Math<V>::GeluTanh>(gate, up, width, y);
      case Activation::kRelu:
        return Gated<Math<V>::Relu>(gate, up, width, y);
    }
  }

  static void Add(const float* a, const float* b, int64_t width, float* y) {
    ForEachVector(width, [&](int64_t i, int64_t count) {
      StoreUpTo(y + i, V::Add(LoadUpTo(a + i, count), LoadUpTo(b + i, count)), count);
    });
  }

  // Of a 16-bit type: whole vectors, then the rest by way of a full one.
  template <F (*kLoad)(const uint16_t*)>
  static void Widen(const void* source, int64_t count, float* destination) {
    const char* bytes = static_cast<const char*>(source);
    ForEachVector(count, [&](int64_t i, int64_t part) {
      uint16_t words[kLanes] = {};
      __builtin_memcpy(words, bytes + 2 * i, static_cast<size_t>(2 * part));
      StoreUpTo(destination + i, kLoad(words), part);
    });
  }
  template <void (*kStore)(uint16_t*, F)>
  static void Narrow(const float* source, int64_t count, void* destination) {
    char* bytes = static_cast<char*>(destination);
    ForEachVector(count, [&](int64_t i, int64_t part) {
      uint16_t words[kLanes];
      kStore(words, LoadUpTo(source + i, part));
      __builtin_memcpy(bytes + 2 * i, words, static_cast<size_t>(2 * part));
    });
  }

  static void ToF32(DType dtype, const void* source, int64_t count, float* destination) {
    if (dtype == DType::kBf16) return Widen<V::LoadBf16>(source, count, destination);
    if (dtype == DType::kF16) return Widen<V::LoadF16>(source, count, destination);
    __builtin_memmove(destination, source, static_cast<size_t>(count) * sizeof(float));
  }
  static void FromF32(DType dtype, const float* source, int64_t count, void* destination) {
    if (dtype == DType::kBf16) return Narrow<V::StoreBf16>(source, count, destination);
    if (dtype == DType::kF16) return Narrow<V::StoreF16>(source, count, destination);
    __builtin_memmove(destination, source, static_cast<size_t>(count) * sizeof(float));
  }

  static void SoftmaxStatistics(const float* x, int64_t count, float* largest, float* sum) {
    const F lowest = V::Set(-__builtin_inff());
    F top = lowest;
    int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) top = V::Max(top, V::Load(x + i));
    float best = V::Largest(top);
    for (; i < count; ++i) best = x[i] > best ? x[i] : best;
    const F shift = V::Set(best);
    F sums[4] = {V::Zero(), V::Zero(), V::Zero(), V::Zero()};
    for (i = 0; i + 4 * kLanes <= count; i += 4 * kLanes) {
      for (int64_t j = 0; j < 4; ++j) {
        sums[j] = V::Add(sums[j], Math<V>::Exp(V::Sub(V::Load(x + i + j * kLanes), shift)));
      }
    }
    ForEachVector(count - i, [&](int64_t at, int64_t part) {
      float values[kLanes] = {};
      F v = Math<V>::Exp(V::Sub(LoadUpTo(x + i + at, part), shift));
      V::Store(values, v);
      v = V::LoadPart(values, part);  // lanes past the end count nothing
      sums[0] = V::Add(sums[0], v);
    });
    *largest = best;
    *sum = V::Sum(V::Add(V::Add(sums[0], sums[1]), V::Add(sums[2], sums[3])));
  }

  static constexpr RowKernels Table() {
    RowKernels rows;
    rows.rms_norm = RmsNorm;
    rows.rope = Rope;
    rows.gated_activation = GatedActivation;
    rows.add = Add;
    rows.to_f32 = ToF32;
    rows.from_f32 = FromF32;
    rows.softmax_statistics = SoftmaxStatistics;
    return rows;
  }
};

}  // namespace
}  // namespace octavo
