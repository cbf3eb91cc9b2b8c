// The CPU kernels of one instruction set, as function pointers. A null entry means "nothing better
// than the next table down"; ResolveKernels (dispatch.h) fills those in. This header is included by
// files compiled for one instruction set: no standard containers, no functions with a body that
// could be merged by the linker with another file's copy.
//
// Packed weights: one layout for every instruction set, for decode and prefill alike. Output rows
// are taken in blocks of 16 and input columns in steps of g, where g elements fill four bytes (s8:
// 4, bf16 and f16: 2, f32: 1):
//   values[ceil(n/16)][ceil(k/g)][16 rows][g columns], padded with zeros; a step is one 64-byte
//   line.
// That is the operand of vpdpbusd / vdpbf16ps with 16 lanes and a row of an AMX B tile. Of s4, g is
// 8: byte j of a row's four holds column j in its low nibble and column j + 4 in its high one, each
// as code + 8, so that a mask and a shift give two steps of unsigned bytes. Its padding is zero
// too, which stands for the code -8: activations past k count as zero.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace octavo {

struct CpuFeatures;

// What a linear kernel reads.
enum class LinearFormat : uint8_t {
  kF32,
  kBf16,
  kF16,
  kS8Channel,
  kS8Block,  // a scale per `block` columns of a row
  kS4Block,  // likewise; per channel is one block that holds all columns
};
inline constexpr int kLinearFormats = 6;

// How a linear treats its activations.
enum class ActivationMode : uint8_t {
  kF32,      // float32, never integers
  k16Bit,    // at least as accurate as bfloat16: float32, or int16/int24 planes with a scale per
             // token
  kS8Token,  // int8 with a scale per token, found at run time (W8A8); for integer weights only
};
inline constexpr int kActivationModes = 3;

// Whether a kernel exists for the pair, in the scalar table and thus in every resolved one.
constexpr bool IsComputable(LinearFormat format, ActivationMode mode) {
  return mode != ActivationMode::kS8Token || format >= LinearFormat::kS8Channel;
}

inline constexpr int64_t kPackedRows = 16;   // output rows per block of a packed weight
inline constexpr int64_t kBlockUnit = 32;    // blocks of columns are multiples of this
inline constexpr float kS8TokenLimit = 127;  // largest code of an int8 activation
// Rows of int8 activations whose largest magnitude is smaller are quantized as if it were this: its
// inverse must be a number.
inline constexpr float kSmallestAbsmax = 1e-28f;

// y[m, n] = scales[n] * (sum_k x[m, k] * w[n, k]) + bias[n], or the sum over blocks of
// scales[n, block] * (sum over the block's k).
//
// kS8Token is vLLM's rule for dynamic int8 activations, in float32: a = max(absmax,
// kSmallestAbsmax), x ~ (a / 127) * round-half-even(x * (127 / a)). Sums of codes are exact in
// int32 for any k below 2^17 and in every block; a row with a NaN or infinity becomes NaN.
struct LinearArgs {
  const void* weights = nullptr;  // packed, see above
  // kS8Channel: [n padded to 16]. Blocks: [n padded / 16][ceil(k / block)][16].
  const float* scales = nullptr;
  const int32_t* row_sums =
      nullptr;                  // [n padded to 16], sum over k of the s8 weights, kS8Channel only
  int64_t block = 0;            // columns per scale, a multiple of kBlockUnit; kS8Block, kS4Block
  const float* bias = nullptr;  // [n padded to 16] or null
  const void* x = nullptr;      // what `prepare` wrote; without a prepare: f32 [m, k]
  float* y = nullptr;           // [m, y_stride]
  int64_t y_stride = 0;         // floats from one row of y to the next
  int64_t n = 0;
  int64_t k = 0;
};

struct LinearKernel {
  // <op>_<activations>x<weights>_<m tile>x<n tile>__<isa>, for example
  // linear_u8px2xs8c_1x64__avx512_vnni
  const char* name = nullptr;
  // Bytes that `prepare` needs for m rows of k. Both null when the kernel reads float32 rows.
  int64_t (*prepared_bytes)(int64_t m, int64_t k) = nullptr;
  // Prepares rows [m_begin, m_end) of x (f32, `x_stride` floats apart) for `run`. Rows are
  // independent, so disjoint ranges may run at once; m is the number of rows of the whole matrix.
  void (*prepare)(const float* x, int64_t x_stride, int64_t m, int64_t k, int64_t m_begin,
                  int64_t m_end, void* prepared) = nullptr;
  // Computes y[m_begin:m_end, n_begin:n_end). n_begin is a multiple of 16, n_end too or n itself.
  // Writes nothing past column n. The result of a row does not depend on the ranges it is computed
  // in, nor on the other rows (batch invariance).
  void (*run)(const LinearArgs& args, int64_t m_begin, int64_t m_end, int64_t n_begin,
              int64_t n_end) = nullptr;
};

enum class Activation : uint8_t { kSilu, kGelu, kGeluTanh, kRelu };

inline constexpr int64_t kAttentionKeys = 32;  // keys that attention takes at a time

// One layer's KV cache as the attention kernel sees it. Of a (block, kv head), keys are
// [head_dim, block_tokens] and values [block_tokens, head_dim], contiguous: what attention
// multiplies with lies in rows both times. The 128 bytes past the last value must be readable.
struct KvView {
  const void* keys = nullptr;  // of block 0, kv head 0
  const void* values = nullptr;
  DType dtype = DType::kBf16;            // bf16, f16 or f32
  int64_t block_tokens = 0;              // tokens per KV block, a multiple of kAttentionKeys
  int64_t block_stride = 0;              // elements from one block to the next
  int64_t head_stride = 0;               // elements from one kv head to the next, within a block
  const int32_t* block_table = nullptr;  // block of positions [i*block_tokens, (i+1)*block_tokens)
};

// Causal attention of the query rows of one sequence; query row i stands at position first_position
// + i and sees the keys at positions (position - window, position], or [0, position] when window is
// 0.
struct AttentionArgs {
  const float* q = nullptr;  // [rows, q_stride], heads in order, rope applied
  float* out = nullptr;      // [rows, out_stride]
  int64_t q_stride = 0;
  int64_t out_stride = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;  // head h reads kv head h / (heads / kv_heads)
  int64_t head_dim = 0;
  int64_t first_position = 0;
  int64_t window = 0;
  float scale = 1.0f;  // of q.k before the softmax
  KvView kv;
};

// Rows of the KV cache, activations and norms. All of these are for contiguous float32 rows;
// outputs may be the input itself unless said otherwise.
struct RowKernels {
  // y = x / sqrt(mean(x^2) + eps) * (weight + weight_offset); sums in float32.
  void (*rms_norm)(const float* x, const float* weight, float eps, float weight_offset,
                   int64_t width, float* y) = nullptr;
  // Rotates `heads` heads of head_dim floats: pairs (i, i + rotary_dim/2) of the first rotary_dim,
  // by the angles whose cosines and sines are given, [rotary_dim/2] each.
  void (*rope)(float* x, const float* cosines, const float* sines, int64_t heads, int64_t head_dim,
               int64_t rotary_dim) = nullptr;
  // y = activation(gate) * up, [width].
  void (*gated_activation)(const float* gate, const float* up, Activation activation, int64_t width,
                           float* y) = nullptr;
  // y = a + b, [width].
  void (*add)(const float* a, const float* b, int64_t width, float* y) = nullptr;
  // Converts [count] to float32 from bf16, f16 or f32; `source` need not be aligned.
  void (*to_f32)(DType dtype, const void* source, int64_t count, float* destination) = nullptr;
  // Converts [count] from float32 to bf16, f16 or f32, to nearest even.
  void (*from_f32)(DType dtype, const float* source, int64_t count, void* destination) = nullptr;
  // Largest of x[0:count) and the sum of exp(x - largest), as log-softmax needs.
  void (*softmax_statistics)(const float* x, int64_t count, float* largest, float* sum) = nullptr;
};

// Attention for query rows [row_begin, row_end) and the query heads of one kv head, online softmax
// in float32. `scratch` holds attention_scratch_floats(heads / kv_heads, head_dim) floats. The
// result of a row does not depend on the range it is computed in.
using AttentionKernel = void (*)(const AttentionArgs& args, int64_t row_begin, int64_t row_end,
                                 int64_t kv_head, float* scratch);

// Quantizes rows [rows, k] of bf16, f16 or f32 (may be unaligned) to s8 per channel as vLLM's
// tpu_int8 does, in float32: s = max(absmax, 1e-5) / 127, q = round-half-even(w * (1 / s)) clamped
// to [-128, 127]. Returns the first row that holds a NaN or infinity, or -1; rows after that one
// are unspecified.
using QuantizeRowsS8 = int64_t (*)(DType dtype, const void* source, int64_t rows, int64_t k,
                                   int8_t* q, float* scales);

// The same with a scale per `block` columns (any number of them, the last block of a row may be
// short), scales [rows, ceil(k / block)]. `bits` 8 is the rule above for each block. `bits` 4 is
// that of compressed-tensors: s = absmax / 7.5 (or 1e-5 / 7.5 for less), q = round-half-even(w / s)
// clamped to [-8, 7], one code in a byte.
using QuantizeRowsBlock = int64_t (*)(DType dtype, const void* source, int64_t rows, int64_t k,
                                      int64_t block, int bits, int8_t* q, float* scales);

// Packs rows [row_begin, row_begin + rows) of a weight of n rows into the layout above. row_begin
// is a multiple of 16; rows is too, or the panel ends at n. `element_bytes` is 1, 2 or 4. The
// padding must be zero beforehand.
using PackRows = void (*)(const void* source, int64_t element_bytes, int64_t row_begin,
                          int64_t rows, int64_t k, void* packed);
// The same for s4; source [rows, k] holds one code of [-8, 7] in a byte.
using PackRowsS4 = void (*)(const int8_t* source, int64_t row_begin, int64_t rows, int64_t k,
                            void* packed);

struct KernelTable {
  const char* isa = nullptr;  // "scalar", "avx2", "avx512", "avx512_vnni"
  bool (*supported)(const CpuFeatures& features) = nullptr;
  LinearKernel linear[kLinearFormats][kActivationModes];
  RowKernels rows;
  int64_t (*attention_scratch_floats)(int64_t group, int64_t head_dim) = nullptr;
  AttentionKernel attention = nullptr;
  QuantizeRowsS8 quantize_rows_s8 = nullptr;
  QuantizeRowsBlock quantize_rows_block = nullptr;
  PackRows pack_rows = nullptr;
  PackRowsS4 pack_rows_s4 = nullptr;
};

}  // namespace octavo
