// The kernels in plain C++, for every architecture: the oracle that the others are tested against.
// Linear layers sum in float64, so that their error is that of the inputs alone.
#include <algorithm>
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
// Writes y[row, first:first + 16) from the sums of one block of packed rows; columns past `n` are
// not written.
void StoreBlock(const LinearArgs& args, int64_t row, int64_t first, int64_t n_end,
                const double* sums) {
  float* y = args.y + row * args.y_stride;
  for (int64_t i = 0; first + i < n_end && i < kPackedRows; ++i) {
    const double bias = args.bias != nullptr ? double{args.bias[first + i]} : 0.0;
    y[first + i] = static_cast<float>(sums[i] + bias);
  }
}

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
  StoreBlock(args, row, first, n_end, sums);
}

template <typename Format>
void Linear(const LinearArgs& args, int64_t m_begin, int64_t m_end, int64_t n_begin,
            int64_t n_end) {
  for (int64_t first = n_begin; first < n_end; first += kPackedRows) {
    for (int64_t row = m_begin; row < m_end; ++row) LinearBlock<Format>(args, row, first, n_end);
  }
}

// Integer weights: columns of a step of four bytes, and the code of one of them.
struct S8Codes {
  static constexpr int64_t kColumns = 4;
  static int Code(const char* step, int64_t column) { return LoadElement<int8_t>(step, column); }
};
struct S4Codes {
  static constexpr int64_t kColumns = 8;
  static int Code(const char* step, int64_t column) {
    const int byte = LoadElement<uint8_t>(step, column % 4);
    return (column < 4 ? byte & 0xf : byte >> 4) - 8;
  }
};

// Activations of integer weights: Row(x, k, row) with scale() and value(column).
struct F32Activations {
  const float* x;
  F32Activations(const void* all, int64_t k, int64_t row)
      : x(static_cast<const float*>(all) + row * k) {}
  double scale() const { return 1.0; }
  double value(int64_t column) const { return double{x[column]}; }
};

// A row of int8 activations: its scale, then the codes.
int64_t S8RowBytes(int64_t k) { return (int64_t{sizeof(float)} + k + 3) / 4 * 4; }

struct S8Activations {
  const char* row_bytes;
  S8Activations(const void* all, int64_t k, int64_t row)
      : row_bytes(static_cast<const char*>(all) + row * S8RowBytes(k)) {}
  double scale() const { return double{LoadElement<float>(row_bytes, 0)}; }
  double value(int64_t column) const {
    return static_cast<double>(LoadElement<int8_t>(row_bytes + sizeof(float), column));
  }
};

int64_t S8PreparedBytes(int64_t m, int64_t k) { return m * S8RowBytes(k); }

void PrepareS8Row(const float* x, int64_t k, char* prepared) {
  float largest = kSmallestAbsmax;
  bool finite = true;
  for (int64_t column = 0; column < k; ++column) {
    finite = finite && std::isfinite(x[column]);
    largest = std::fmax(largest, std::fabs(x[column]));
  }
  const float scale = finite ? largest / kS8TokenLimit : std::nanf("");
  const float inverse = finite ? kS8TokenLimit / largest : 0.0f;
  std::memcpy(prepared, &scale, sizeof scale);
  for (int64_t column = 0; column < k; ++column) {
    const float code = finite ? std::nearbyint(x[column] * inverse) : 0.0f;
    prepared[int64_t{sizeof scale} + column] = static_cast<char>(static_cast<int8_t>(code));
  }
}

void PrepareS8(const float* x, int64_t x_stride, int64_t /*m*/, int64_t k, int64_t m_begin,
               int64_t m_end, void* prepared) {
  for (int64_t row = m_begin; row < m_end; ++row) {
    PrepareS8Row(x + row * x_stride, k, static_cast<char*>(prepared) + row * S8RowBytes(k));
  }
}

// Scales per block of `block` columns; per channel is one block of all.
template <typename Codes, typename Activations>
void ScaledLinear(const LinearArgs& args, int64_t m_begin, int64_t m_end, int64_t n_begin,
                  int64_t n_end) {
  const int64_t block = args.block > 0 ? args.block : args.k;
  const int64_t blocks = args.k > 0 ? (args.k + block - 1) / block : 0;
  const int64_t steps = (args.k + Codes::kColumns - 1) / Codes::kColumns;
  for (int64_t first = n_begin; first < n_end; first += kPackedRows) {
    const char* w = static_cast<const char*>(args.weights) + first * steps * kStepBytes;
    const float* scales = args.scales + first * blocks;  // [blocks][16]
    for (int64_t row = m_begin; row < m_end; ++row) {
      const Activations x(args.x, args.k, row);
      double sums[kPackedRows] = {};
      for (int64_t i = 0; i < kPackedRows; ++i) {
        for (int64_t b = 0; b < blocks; ++b) {
          double sum = 0.0;
          for (int64_t column = b * block; column < args.k && column < (b + 1) * block; ++column) {
            const char* step = w + (column / Codes::kColumns * kPackedRows + i) * kStepBytes;
            sum += x.value(column) * Codes::Code(step, column % Codes::kColumns);
          }
          sums[i] += sum * double{scales[b * kPackedRows + i]};
        }
        sums[i] *= x.scale();
      }
      StoreBlock(args, row, first, n_end, sums);
    }
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

int64_t QuantizeBlocks(DType dtype, const void* source, int64_t rows, int64_t k, int64_t block,
                       int bits, int8_t* q, float* scales) {
  const float limit = bits == 4 ? 7.5f : 127.0f;
  const float low = bits == 4 ? -8.0f : -128.0f;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t begin = row * k; begin < (row + 1) * k; begin += block) {
      const int64_t end = std::min(begin + block, (row + 1) * k);
      float largest = 1e-5f;
      for (int64_t i = begin; i < end; ++i) {
        const float value = LoadAsFloat(dtype, source, i);
        if (!std::isfinite(value)) return row;
        largest = std::fmax(largest, std::fabs(value));
      }
      const float scale = largest / limit;
      const float inverse = 1.0f / scale;
      *scales++ = scale;
      for (int64_t i = begin; i < end; ++i) {
        const float value = LoadAsFloat(dtype, source, i);
        const float code = std::nearbyint(bits == 4 ? value / scale : value * inverse);
        q[i] = static_cast<int8_t>(std::fmin(std::fmax(code, low), -1.0f - low));
      }
    }
  }
  return -1;
}

void PackS4(const int8_t* source, int64_t row_begin, int64_t rows, int64_t k, void* packed) {
  constexpr int64_t kColumns = S4Codes::kColumns;
  const int64_t steps = (k + kColumns - 1) / kColumns;
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t row = row_begin + i;
    char* to = static_cast<char*>(packed) +
               ((row / kPackedRows) * steps * kPackedRows + row % kPackedRows) * kStepBytes;
    for (int64_t column = 0; column < k; ++column) {
      const int code = source[i * k + column] + 8;
      char& byte = to[column / kColumns * kPackedRows * kStepBytes + column % kStepBytes];
      const bool low = column % kColumns < kStepBytes;
      byte = static_cast<char>(low ? (byte & 0xf0) | code : (byte & 0x0f) | (code << 4));
    }
  }
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
  for (const ActivationMode mode : {ActivationMode::kF32, ActivationMode::k16Bit}) {
    LinearKernel& kernel = table.linear[static_cast<int>(format)][static_cast<int>(mode)];
    kernel.name = Format::kName;
    kernel.run = Linear<Format>;
  }
}

template <typename Codes>
constexpr void SetScaledLinear(KernelTable& table, LinearFormat format, const char* f32_name,
                               const char* s8_name) {
  LinearKernel* kernels = table.linear[static_cast<int>(format)];
  for (const ActivationMode mode : {ActivationMode::kF32, ActivationMode::k16Bit}) {
    kernels[static_cast<int>(mode)].name = f32_name;
    kernels[static_cast<int>(mode)].run = ScaledLinear<Codes, F32Activations>;
  }
  LinearKernel& s8 = kernels[static_cast<int>(ActivationMode::kS8Token)];
  s8.name = s8_name;
  s8.prepared_bytes = S8PreparedBytes;
  s8.prepare = PrepareS8;
  s8.run = ScaledLinear<Codes, S8Activations>;
}

constexpr KernelTable MakeTable() {
  KernelTable table;
  table.isa = "scalar";
  table.supported = [](const CpuFeatures&) { return true; };
  SetLinear<F32>(table, LinearFormat::kF32);
  SetLinear<Bf16>(table, LinearFormat::kBf16);
  SetLinear<F16>(table, LinearFormat::kF16);
  SetScaledLinear<S8Codes>(table, LinearFormat::kS8Channel, "linear_f32xs8c_1x16__scalar",
                           "linear_s8txs8c_1x16__scalar");
  SetScaledLinear<S8Codes>(table, LinearFormat::kS8Block, "linear_f32xs8b_1x16__scalar",
                           "linear_s8txs8b_1x16__scalar");
  SetScaledLinear<S4Codes>(table, LinearFormat::kS4Block, "linear_f32xs4b_1x16__scalar",
                           "linear_s8txs4b_1x16__scalar");
  table.quantize_rows_s8 = QuantizeRows;
  table.quantize_rows_block = QuantizeBlocks;
  table.pack_rows = Pack;
  table.pack_rows_s4 = PackS4;
  table.rows = Rows<VecScalar>::Table();
  table.attention_scratch_floats = PagedAttention<VecScalar>::ScratchFloats;
  table.attention = PagedAttention<VecScalar>::Run;
  return table;
}

}  // namespace

constinit const KernelTable kScalarKernels = MakeTable();

}  // namespace octavo
