// What the tests of linear kernels share: the tables to test, random numbers, memory with a fence
// behind it, and weights in packed form.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/cpu_features.h"
#include "base/float16.h"
#include "kernels/dispatch.h"
#include "kernels/packed_weight.h"

namespace octavo::testing {

// Every table that this CPU supports, each filled in from those below it.
inline std::vector<KernelTable> SupportedTables() {
  std::vector<KernelTable> tables;
  for (const KernelTable* table : AllKernelTables()) {
    if (table->supported(HostCpuFeatures())) tables.push_back(ResolveKernels(table->isa));
  }
  return tables;
}

// Memory that ends where a page ends that must not be read: reading past it is a crash.
template <typename T>
class FencedArray {
 public:
  explicit FencedArray(size_t count) : count_(count) {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t used = (count * sizeof(T) + page - 1) / page * page;
    bytes_ = used + page;
    base_ = static_cast<char*>(
        mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (base_ == MAP_FAILED || mprotect(base_ + used, page, PROT_NONE) != 0) {
      throw std::runtime_error("no memory for a test");
    }
    data_ = reinterpret_cast<T*>(base_ + used - count * sizeof(T));
  }
  ~FencedArray() { munmap(base_, bytes_); }
  FencedArray(const FencedArray&) = delete;
  FencedArray& operator=(const FencedArray&) = delete;

  T* data() { return data_; }
  const T* data() const { return data_; }
  size_t size() const { return count_; }
  T& operator[](size_t i) { return data_[i]; }
  const T& operator[](size_t i) const { return data_[i]; }

 private:
  size_t count_;
  size_t bytes_;
  char* base_;
  T* data_;
};

// The weight format of a kernel's format; `block` columns per scale where it has blocks, 0: s4 per
// channel.
inline WeightFormat FormatOf(LinearFormat format, int64_t block = 32) {
  switch (format) {
    case LinearFormat::kF32:
      return WeightFormat::Plain(DType::kF32);
    case LinearFormat::kBf16:
      return WeightFormat::Plain(DType::kBf16);
    case LinearFormat::kF16:
      return WeightFormat::Plain(DType::kF16);
    case LinearFormat::kS8Channel:
      return WeightFormat::S8Channel();
    case LinearFormat::kS8Block:
      return {.element = DType::kS8, .granularity = Granularity::kBlock, .block = block};
    case LinearFormat::kS4Block:
      if (block == 0) return {.element = DType::kS4, .granularity = Granularity::kChannel};
      return {.element = DType::kS4, .granularity = Granularity::kBlock, .block = block};
  }
  throw std::logic_error("unknown format");
}

inline bool IsInteger(LinearFormat format) { return format >= LinearFormat::kS8Channel; }

inline std::vector<float> Gaussian(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

inline int64_t PaddedRows(int64_t n) { return (n + kPackedRows - 1) / kPackedRows * kPackedRows; }

// A weight of n rows of k, as stored, packed, and as float64.
struct TestWeight {
  TestWeight(LinearFormat format_in, int64_t n_in, int64_t k_in, int64_t block_in = 32)
      : format(format_in),
        layout(FormatOf(format_in, block_in)),
        n(n_in),
        k(k_in),
        block(layout.granularity == Granularity::kBlock ? layout.block : std::max(k, int64_t{1})),
        blocks(std::max<int64_t>((k + block - 1) / block, 1)),
        packed(static_cast<size_t>(PackedBytes(layout, n_in, k_in))),
        scales(static_cast<size_t>(std::max(PackedScales(layout, n_in, k_in), PaddedRows(n_in)))),
        row_sums(static_cast<size_t>(PaddedRows(n_in))),
        bias(static_cast<size_t>(PaddedRows(n_in))) {}

  // Takes `values` [n, k] (of integers: codes), rounded to the format, and a scale for each block
  // of each row [n, blocks].
  void Set(const std::vector<float>& values, const std::vector<float>& block_scales) {
    const int64_t bytes = ByteSize(layout.element);
    std::vector<char> stored(static_cast<size_t>(n * k * bytes));
    exact.resize(static_cast<size_t>(n * k));
    for (int64_t row = 0; row < n; ++row) {
      int32_t sum = 0;
      for (int64_t column = 0; column < k; ++column) {
        const size_t i = static_cast<size_t>(row * k + column);
        exact[i] = Store(values[i], stored.data() + i * static_cast<size_t>(bytes));
        sum += static_cast<int32_t>(exact[i]);
        if (IsInteger(format)) {
          exact[i] *= double{block_scales[static_cast<size_t>(row * blocks + column / block)]};
        }
      }
      row_sums[static_cast<size_t>(row)] = sum;
    }
    if (IsInteger(format)) PackScales(layout, block_scales.data(), 0, n, k, scales.data());
    std::memset(packed.data(), 0, packed.size());
    const KernelTable scalar = ResolveKernels("scalar");
    if (format == LinearFormat::kS4Block) {
      scalar.pack_rows_s4(reinterpret_cast<const int8_t*>(stored.data()), 0, n, k, packed.data());
    } else {
      scalar.pack_rows(stored.data(), bytes, 0, n, k, packed.data());
    }
  }

  static std::unique_ptr<TestWeight> Random(LinearFormat format, int64_t n, int64_t k,
                                            uint32_t seed, int64_t block = 32) {
    auto weight = std::make_unique<TestWeight>(format, n, k, block);
    std::vector<float> values = Gaussian(static_cast<size_t>(n * k), seed);
    std::vector<float> scales = Gaussian(static_cast<size_t>(n * weight->blocks), seed + 1);
    for (float& scale : scales) scale = 0.01f * (1.0f + std::fabs(scale));
    if (IsInteger(format)) {
      const float top = format == LinearFormat::kS4Block ? 7.0f : 127.0f;
      for (float& value : values) {
        value = std::fmin(std::fmax(std::nearbyint(value * top / 3.0f), -1.0f - top), top);
      }
      if (!values.empty()) {
        values.front() = -1.0f - top;
        values.back() = top;
      }
    }
    weight->Set(values, scales);
    const std::vector<float> offsets = Gaussian(static_cast<size_t>(n), seed + 2);
    std::memcpy(weight->bias.data(), offsets.data(), offsets.size() * sizeof(float));
    return weight;
  }

  LinearFormat format;
  WeightFormat layout;
  int64_t n;
  int64_t k;
  int64_t block;   // columns per scale; k per channel
  int64_t blocks;  // scales per row
  FencedArray<char> packed;
  FencedArray<float> scales;      // packed
  FencedArray<int32_t> row_sums;  // [n padded]
  FencedArray<float> bias;        // [n padded]
  std::vector<double> exact;      // [n, k], scales included

 private:
  double Store(float value, char* to) const {
    switch (layout.element) {
      case DType::kF32:
        std::memcpy(to, &value, 4);
        return double{value};
      case DType::kBf16: {
        const uint16_t bits = F32ToBf16(value);
        std::memcpy(to, &bits, 2);
        return double{Bf16ToF32(bits)};
      }
      case DType::kF16: {
        const uint16_t bits = F32ToF16(value);
        std::memcpy(to, &bits, 2);
        return double{F16ToF32(bits)};
      }
      default:
        *to = static_cast<char>(static_cast<int8_t>(value));
        break;
    }
    return double{value};
  }
};

// Activations prepared for one kernel.
class Prepared {
 public:
  Prepared(const LinearKernel& kernel, const float* x, int64_t m, int64_t k)
      : bytes_(kernel.prepare ? static_cast<size_t>(kernel.prepared_bytes(m, k)) : 0) {
    if (kernel.prepare) {
      // In two ranges, as two threads do.
      kernel.prepare(x, k, m, k, m / 2, m, bytes_.data());
      kernel.prepare(x, k, m, k, 0, m / 2, bytes_.data());
    }
    data_ = kernel.prepare ? static_cast<const void*>(bytes_.data()) : x;
  }
  const void* data() const { return data_; }

 private:
  FencedArray<char> bytes_;
  const void* data_;
};

inline LinearArgs ArgsOf(const TestWeight& weight, bool with_bias, const void* x, float* y,
                         int64_t y_stride) {
  LinearArgs args;
  args.weights = weight.packed.data();
  if (IsInteger(weight.format)) args.scales = weight.scales.data();
  if (weight.format == LinearFormat::kS8Channel) args.row_sums = weight.row_sums.data();
  args.block = PackedBlock(weight.layout, weight.k);
  if (with_bias) args.bias = weight.bias.data();
  args.x = x;
  args.y = y;
  args.y_stride = y_stride;
  args.n = weight.n;
  args.k = weight.k;
  return args;
}

// y [m, n] of one call.
inline std::vector<float> RunLinear(const LinearKernel& kernel, const TestWeight& weight,
                                    const float* x, int64_t m, bool with_bias = true) {
  const Prepared prepared(kernel, x, m, weight.k);
  std::vector<float> y(static_cast<size_t>(m * weight.n));
  kernel.run(ArgsOf(weight, with_bias, prepared.data(), y.data(), weight.n), 0, m, 0, weight.n);
  return y;
}

}  // namespace octavo::testing
