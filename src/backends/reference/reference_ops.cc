#include "backends/reference/reference_ops.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/thread_pool.h"
#include "graph/rope.h"

namespace octavo::reference {
namespace {

// Sixteen partial sums: their rounding errors stay small, and the compiler may add them side by
// side.
float Dot(const float* a, const float* b, int64_t n) {
  constexpr int64_t kLanes = 16;
  float partial[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) partial[lane] += a[i + lane] * b[i + lane];
  }
  double sum = 0.0;
  for (const float lane : partial) sum += lane;
  for (; i < n; ++i) sum += a[i] * b[i];
  return static_cast<float>(sum);
}

template <typename Body>
void ForEach(ThreadPool* pool, int64_t count, Body&& body) {
  if (pool != nullptr) {
    pool->ParallelTasks(count, [&](int64_t i, int) { body(i); });
  } else {
    for (int64_t i = 0; i < count; ++i) body(i);
  }
}

float Activate(float x, op::GatedActivation::Function function) {
  using Function = op::GatedActivation::Function;
  switch (function) {
    case Function::kSilu:
      return x / (1.0f + std::exp(-x));
    case Function::kGelu:
      return 0.5f * x * (1.0f + std::erf(x * static_cast<float>(std::numbers::sqrt2 / 2.0)));
    case Function::kGeluTanh: {
      const float slope = static_cast<float>(std::numbers::sqrt2 * std::numbers::inv_sqrtpi);
      return 0.5f * x * (1.0f + std::tanh(slope * (x + 0.044715f * x * x * x)));
    }
    case Function::kRelu:
      return std::max(x, 0.0f);
  }
  return x;
}

// scores -> softmax(scores)
void Softmax(std::vector<float>& scores) {
  const float largest = *std::max_element(scores.begin(), scores.end());
  double sum = 0.0;
  for (float& score : scores) sum += score = std::exp(score - largest);
  for (float& score : scores) score = static_cast<float>(score / sum);
}

}  // namespace

Matrix Embedding(std::span<const int32_t> token_ids, const Matrix& table) {
  Matrix y(static_cast<int64_t>(token_ids.size()), table.width);  // [tokens, width]
  for (int64_t t = 0; t < y.rows; ++t) {
    std::copy_n(table.row(token_ids[static_cast<size_t>(t)]), y.width, y.row(t));
  }
  return y;
}

Matrix Linear(const Matrix& x, const Matrix& weight, const Matrix* bias, ThreadPool* pool) {
  Matrix y(x.rows, weight.rows);  // [rows, out]
  ForEach(pool, weight.rows, [&](int64_t o) {
    for (int64_t r = 0; r < x.rows; ++r) {
      y.row(r)[o] = Dot(x.row(r), weight.row(o), x.width) + (bias ? bias->row(0)[o] : 0.0f);
    }
  });
  return y;
}

Matrix RmsNorm(const Matrix& x, const Matrix& weight, const op::RmsNorm& op) {
  Matrix y(x.rows, x.width);  // [rows, width]
  for (int64_t r = 0; r < x.rows; ++r) {
    for (int64_t begin = 0; begin < x.width; begin += op.group) {
      const float* in = x.row(r) + begin;  // [group]
      float* out = y.row(r) + begin;       // [group]
      double squares = 0.0;
      for (int64_t i = 0; i < op.group; ++i) squares += double{in[i]} * in[i];
      const double mean = squares / static_cast<double>(op.group);
      const float scale = static_cast<float>(1.0 / std::sqrt(mean + op.eps));
      for (int64_t i = 0; i < op.group; ++i) {
        out[i] = in[i] * scale * (weight.row(0)[i] + op.weight_offset);
      }
    }
  }
  return y;
}

Matrix Rope(const Matrix& x, const op::Rope& op, const RopeParameters& parameters,
            std::span<const SequenceRows> sequences) {
  Matrix y = x;  // [tokens, heads * head_dim]; dimensions past rotary_dim stay as they are
  const int64_t pairs = parameters.rotary_dim / 2;
  int64_t row = 0;
  for (const SequenceRows& sequence : sequences) {
    const RopeFrequencies frequencies = ComputeRopeFrequencies(parameters, sequence.rope_length);
    for (int64_t t = 0; t < sequence.rows; ++t, ++row) {
      const float position = static_cast<float>(sequence.first_position + t);
      for (int64_t head = 0; head < op.heads; ++head) {
        const float* in = x.row(row) + head * op.head_dim;  // [head_dim]
        float* out = y.row(row) + head * op.head_dim;       // [head_dim]
        for (int64_t i = 0; i < pairs; ++i) {               // dimension i turns with i + pairs
          const float angle = position * frequencies.inverse[static_cast<size_t>(i)];
          const float c = std::cos(angle) * frequencies.attention_factor;
          const float s = std::sin(angle) * frequencies.attention_factor;
          out[i] = in[i] * c - in[i + pairs] * s;
          out[i + pairs] = in[i + pairs] * c + in[i] * s;
        }
      }
    }
  }
  return y;
}

Matrix Attention(const Matrix& q, const Matrix& k, const Matrix& v, const op::Attention& op,
                 std::span<const SequenceRows> sequences, KvCache& cache, ThreadPool* pool) {
  Matrix y(q.rows, q.width);  // [tokens, heads * head_dim]
  const int64_t queries_per_kv_head = op.heads / op.kv_heads;
  int64_t first_row = 0;
  for (const SequenceRows& sequence : sequences) {
    const auto block = [&](int64_t position) {
      return sequence.block_table[static_cast<size_t>(position / kKvBlockTokens)];
    };
    const auto key = [&](int64_t p) { return cache.Key(block(p), p % kKvBlockTokens); };
    const auto value = [&](int64_t p) { return cache.Value(block(p), p % kKvBlockTokens); };

    for (int64_t t = 0; t < sequence.rows; ++t) {
      const int64_t position = sequence.first_position + t;
      std::copy_n(k.row(first_row + t), k.width, key(position));
      std::copy_n(v.row(first_row + t), v.width, value(position));
    }
    ForEach(pool, sequence.rows, [&](int64_t t) {
      const int64_t position =
          sequence.first_position + t;  // of the query; it sees [first, position]
      const int64_t first = op.window > 0 ? std::max<int64_t>(0, position - op.window + 1) : 0;
      std::vector<float> scores(static_cast<size_t>(position - first + 1));
      for (int64_t head = 0; head < op.heads; ++head) {
        const int64_t kv_offset = head / queries_per_kv_head * op.head_dim;
        const float* query = q.row(first_row + t) + head * op.head_dim;  // [head_dim]
        float* out = y.row(first_row + t) + head * op.head_dim;          // [head_dim]
        for (int64_t p = first; p <= position; ++p) {
          scores[static_cast<size_t>(p - first)] =
              op.scale * Dot(query, key(p) + kv_offset, op.head_dim);
        }
        Softmax(scores);
        for (int64_t p = first; p <= position; ++p) {
          const float weight = scores[static_cast<size_t>(p - first)];
          const float* row = value(p) + kv_offset;  // [head_dim]
          for (int64_t i = 0; i < op.head_dim; ++i) out[i] += weight * row[i];
        }
      }
    });
    first_row += sequence.rows;
  }
  return y;
}

Matrix GatedActivation(const Matrix& gate, const Matrix& up,
                       op::GatedActivation::Function function) {
  Matrix y(gate.rows, gate.width);  // [rows, width]
  for (size_t i = 0; i < y.data.size(); ++i) {
    y.data[i] = Activate(gate.data[i], function) * up.data[i];
  }
  return y;
}

Matrix Add(const Matrix& a, const Matrix& b) {
  Matrix y(a.rows, a.width);  // [rows, width]
  for (size_t i = 0; i < y.data.size(); ++i) y.data[i] = a.data[i] + b.data[i];
  return y;
}

Matrix SelectRows(const Matrix& x, std::span<const int32_t> rows) {
  Matrix y(static_cast<int64_t>(rows.size()), x.width);  // [selected, width]
  for (int64_t r = 0; r < y.rows; ++r) {
    std::copy_n(x.row(rows[static_cast<size_t>(r)]), x.width, y.row(r));
  }
  return y;
}

}  // namespace octavo::reference
