// The operations of op.h in float32. Matrices are row-major; a row is a token.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backends/backend.h"
#include "graph/op.h"
#include "tensor/buffer.h"

namespace octavo::reference {

struct Matrix {
  Matrix() = default;
  Matrix(int64_t row_count, int64_t column_count)
      : rows(row_count), width(column_count), data(static_cast<size_t>(row_count * column_count)) {}

  float* row(int64_t i) { return data.data() + i * width; }
  const float* row(int64_t i) const { return data.data() + i * width; }

  int64_t rows = 0;
  int64_t width = 0;
  std::vector<float> data;  // [rows, width]
};

// Keys and values of one layer, by KV block: [blocks, kKvBlockTokens, width] each.
struct KvCache {
  float* Key(int32_t block, int64_t slot) { return At(keys, block, slot); }
  float* Value(int32_t block, int64_t slot) { return At(values, block, slot); }

  int64_t width = 0;  // kv_heads * head_dim
  Buffer keys;
  Buffer values;

 private:
  float* At(Buffer& buffer, int32_t block, int64_t slot) const {
    return buffer.as<float>() + (int64_t{block} * kKvBlockTokens + slot) * width;
  }
};

Matrix Embedding(std::span<const int32_t> token_ids, const Matrix& table);
// `bias` null: none.
Matrix Linear(const Matrix& x, const Matrix& weight, const Matrix* bias, ThreadPool* pool);
Matrix RmsNorm(const Matrix& x, const Matrix& weight, const op::RmsNorm& op);
Matrix Rope(const Matrix& x, const op::Rope& op, const RopeParameters& parameters,
            std::span<const SequenceRows> sequences);
// Writes k and v of the batch into `cache`, then attends.
Matrix Attention(const Matrix& q, const Matrix& k, const Matrix& v, const op::Attention& op,
                 std::span<const SequenceRows> sequences, KvCache& cache, ThreadPool* pool);
Matrix GatedActivation(const Matrix& gate, const Matrix& up,
                       op::GatedActivation::Function function);
Matrix Add(const Matrix& a, const Matrix& b);
Matrix SelectRows(const Matrix& x, std::span<const int32_t> rows);

}  // namespace octavo::reference
