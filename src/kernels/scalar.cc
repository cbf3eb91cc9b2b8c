// The kernels in plain C++, for every architecture: the oracle that the others are tested against.
// Linear layers sum in float64, so that their error is that of the inputs alone.
#include <cmath>
#include <cstring>

#include "base/float16.h"
#include "kernels/generic/attention-inl.h"
#include "kernels/generic/rows-inl.h"
#include "kernels/generic/vec_scalar.h"
#include "kernels/isa_tables.h"

namespace octavo {
namespace {

constexpr int64_t kStepBytes = 4;

template <typename Element>
Element LoadElement(const void* source, int64_t index) {
  Element value;
  std::memcpy(&value, static_cast<const char*>(source) + index * int64_t{sizeof value},
              sizeof value);
  return value;
}

struct F32 {
  using Element = float;
  static constexpr const char* kName = "linear_f32xf32_1x16__scalar";
  static float ToFloat(float value) { return value; }
};
struct Bf16 {
  using Element = uint16_t;
  static constexpr const char* kName = "linear_f32xbf16_1x16__scalar";
  static float ToFloat(uint16_t value) { return Bf16ToF32(value); }
};
struct F16 {
  using Element = uint16_t;
  static constexpr const char* kName = "linear_f32xf16_1x16__scalar";
  static float ToFloat(uint16_t value) { return F16ToF32(value); }
};
struct S8 {
  using Element = int8_t;
  static constexpr const char* kName = "linear_f32xs8c_1x16__scalar";
  static float ToFloat(int8_t value) { return value; }
};

// y[row, first:first + 16) of one block of packed rows; columns past `n` are not written.
template <typename Format>
void LinearBlock(const LinearArgs& args, int64_t row, int64_t first, int64_t n_end) {
  constexpr int64_t kColumns = kStepBytes / int64_t{sizeof(typename Format::Element)};
  const int64_t steps = (args.k + kColumns - 1) / kColumns;
  const char* block = static_cast<const char*>(args.weights) + first * steps * kStepBytes;
  const float* x = static_cast<const float*>(args.x) + row * args.k;  // [k]
  double sums[kPackedRows] = {};
  for (int64_t column = 0; column < args.k; ++column) {
    const char* step = block + (column / kColumns) * kPackedRows * kStepBytes;
    for (int64_t i = 0; i < kPackedRows; ++i) {
      const auto value =
          LoadElement<typename Format::Element>(step, i * kColumns + column % kColumns);
      sums[i] += double{x[column]} * double{Format::ToFloat(value)};
    }
  }
  float* y = args.y + row * args.y_stride;
  for (int64_t i = 0; first + i < n_end && i < kPackedRows; ++i) {
    double sum = sums[i];
    if (args.scales != nullptr) sum *= double{args.scales[first + i]};
    if (args.bias != nullptr) sum += double{args.bias[first + i]};
    y[first + i] = static_cast<float>(sum);
  }
}

template <typename Format>
void Linear(const LinearArgs& args, int64_t m_begin, int64_t m_end, int64_t n_begin,
            int64_t n_end) {
  for (int64_t first = n_begin; first < n_end; first += kPackedRows) {
    for (int64_t row = m_begin; row < m_end; ++row) LinearBlock<Format>(args, row, first, n_end);
  }
}

float LoadAsFloat(DType dtype, const void* source, int64_t index) {
  switch (dtype) {
    case DType::kBf16:
      return Bf16ToF32(LoadElement<uint16_t>(source, index));
    case DType::kF16:
      return F16ToF32(LoadElement<uint16_t>(source, index));
    default:
      return LoadElement<float>(source, index);
  }
}

int64_t QuantizeRows(DType dtype, const void* source, int64_t rows, int64_t k, int8_t* q,
                     float* scales) {
  for (int64_t row = 0; row < rows; ++row) {
    float largest = 0.0f;
    for (int64_t column = 0; column < k; ++column) {
      const float value = LoadAsFloat(dtype, source, row * k + column);
      if (!std::isfinite(value)) return row;
      largest = std::fmax(largest, std::fabs(value));
    }
    const float scale = std::fmax(largest, 1e-5f) / 127.0f;
    const float inverse = 1.0f / scale;
    scales[row] = scale;
    for (int64_t column = 0; column < k; ++column) {
      const float value = LoadAsFloat(dtype, source, row * k + column);
      const float code = std::nearbyint(value * inverse);  // half to even in the default mode
      q[row * k + column] = static_cast<int8_t>(std::fmin(std::fmax(code, -128.0f), 127.0f));
    }
  }
  return -1;
}

void Pack(const void* source, int64_t element_bytes, int64_t row_begin, int64_t rows, int64_t k,
          void* packed) {
  const int64_t columns_per_step = kStepBytes / element_bytes;
  const int64_t steps = (k + columns_per_step - 1) / columns_per_step;
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t row = row_begin + i;
    const char* from = static_cast<const char*>(source) + i * k * element_bytes;
    char* to = static_cast<char*>(packed) +
               ((row / kPackedRows) * steps * kPackedRows + row % kPackedRows) * kStepBytes;
    for (int64_t step = 0; step < steps; ++step) {
      const int64_t left = (k - step * columns_per_step) * element_bytes;
      std::memcpy(to + step * kPackedRows * kStepBytes, from + step * kStepBytes,
                  static_cast<size_t>(left < kStepBytes ? left : kStepBytes));
    }
  }
}

template <typename Format>
constexpr void SetLinear(KernelTable& table, LinearFormat format) {
  for (LinearKernel& kernel : table.linear[static_cast<int>(format)]) {
    kernel.name = Format::kName;
    kernel.run = Linear<Format>;
  }
}

constexpr KernelTable MakeTable() {
  KernelTable table;
  table.isa = "scalar";
  table.supported = [](const CpuFeatures&) { return true; };
  SetLinear<F32>(table, LinearFormat::kF32);
  SetLinear<Bf16>(table, LinearFormat::kBf16);
  SetLinear<F16>(table, LinearFormat::kF16);
  SetLinear<S8>(table, LinearFormat::kS8Channel);
  table.quantize_rows_s8 = QuantizeRows;
  table.pack_rows = Pack;
  table.rows = Rows<VecScalar>::Table();
  table.attention_scratch_floats = PagedAttention<VecScalar>::ScratchFloats;
  table.attention = PagedAttention<VecScalar>::Run;
  return table;
}

}  // namespace

constinit const KernelTable kScalarKernels = MakeTable();

}  // namespace octavo
