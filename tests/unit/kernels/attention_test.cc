// Paged attention of every instruction set that this CPU runs, against softmax(q k^T) v in double.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/cpu_features.h"
#include "base/float16.h"
#include "kernels/dispatch.h"
#include "tensor/buffer.h"

namespace octavo {
namespace {

struct Problem {
  int64_t heads = 6;
  int64_t kv_heads = 2;
  int64_t head_dim = 64;
  int64_t tokens = 70;  // in the cache, the last `rows` of them with queries
  int64_t rows = 70;
  int64_t window = 0;
  DType dtype = DType::kF32;
  int64_t block_tokens = 32;
};

// One sequence in a cache whose blocks lie in a shuffled order, and its queries.
class Cache {
 public:
  explicit Cache(const Problem& problem) : p_(problem) {
    std::mt19937 engine(11);
    std::normal_distribution<float> normal;
    const auto fill = [&](int64_t count) {
      std::vector<float> values(static_cast<size_t>(count));
      for (float& value : values) value = normal(engine);
      return values;
    };
    q_ = fill(p_.rows * p_.heads * p_.head_dim);            // [rows, heads, head_dim]
    keys_ = fill(p_.tokens * p_.kv_heads * p_.head_dim);    // [tokens, kv_heads, head_dim]
    values_ = fill(p_.tokens * p_.kv_heads * p_.head_dim);  // likewise
    const int64_t needed = (p_.tokens + p_.block_tokens - 1) / p_.block_tokens;
    const int64_t blocks = needed + 2;  // some belong to nobody
    for (int32_t i = 0; i < blocks; ++i) table_.push_back(i);
    std::shuffle(table_.begin(), table_.end(), engine);
    const int64_t bytes = ByteSize(p_.dtype);
    const int64_t elements = blocks * p_.kv_heads * p_.block_tokens * p_.head_dim;
    key_cache_ = Buffer(static_cast<size_t>(elements * bytes + 128));
    value_cache_ = Buffer(static_cast<size_t>(elements * bytes + 128));
    // What no row may see is not a number.
    std::memset(key_cache_.data(), 0xff, key_cache_.bytes());
    std::memset(value_cache_.data(), 0xff, value_cache_.bytes());
    for (int64_t t = 0; t < p_.tokens; ++t) {
      for (int64_t h = 0; h < p_.kv_heads; ++h) {
        for (int64_t d = 0; d < p_.head_dim; ++d) Place(t, h, d);
      }
    }
  }

  AttentionArgs Args(std::vector<float>& out) const {
    out.assign(q_.size(), -7.0f);
    AttentionArgs args;
    args.q = q_.data();
    args.out = out.data();
    args.q_stride = args.out_stride = p_.heads * p_.head_dim;
    args.heads = p_.heads;
    args.kv_heads = p_.kv_heads;
    args.head_dim = p_.head_dim;
    args.first_position = p_.tokens - p_.rows;
    args.window = p_.window;
    args.scale = 1.0f / std::sqrt(static_cast<float>(p_.head_dim));
    args.kv.keys = key_cache_.data();
    args.kv.values = value_cache_.data();
    args.kv.dtype = p_.dtype;
    args.kv.block_tokens = p_.block_tokens;
    args.kv.head_stride = p_.block_tokens * p_.head_dim;
    args.kv.block_stride = p_.kv_heads * args.kv.head_stride;
    args.kv.block_table = table_.data();
    return args;
  }

  // Of the values that the cache holds, that is after rounding to its type. [rows, heads, head_dim]
  std::vector<double> Expected() const {
    std::vector<double> out(q_.size(), 0.0);
    for (int64_t row = 0; row < p_.rows; ++row) {
      const int64_t position = p_.tokens - p_.rows + row;
      const int64_t oldest = p_.window > 0 ? std::max<int64_t>(0, position - p_.window + 1) : 0;
      for (int64_t head = 0; head < p_.heads; ++head) {
        const int64_t base = (row * p_.heads + head) * p_.head_dim;
        const int64_t kv_head = head / (p_.heads / p_.kv_heads);
        double sum = 0.0;
        for (int64_t t = oldest; t <= position; ++t) {
          const int64_t kv = (t * p_.kv_heads + kv_head) * p_.head_dim;
          double score = 0.0;
          for (int64_t d = 0; d < p_.head_dim; ++d) score += double{q_[base + d]} * keys_[kv + d];
          const double p = std::exp(score / std::sqrt(static_cast<double>(p_.head_dim)));
          sum += p;
          for (int64_t d = 0; d < p_.head_dim; ++d) out[base + d] += p * values_[kv + d];
        }
        for (int64_t d = 0; d < p_.head_dim; ++d) out[base + d] /= sum;
      }
    }
    return out;
  }

 private:
  // Rounds an element to the cache's type, here and in the cache.
  void Place(int64_t t, int64_t h, int64_t d) {
    const size_t from = static_cast<size_t>((t * p_.kv_heads + h) * p_.head_dim + d);
    const int64_t block = table_[static_cast<size_t>(t / p_.block_tokens)];
    const int64_t base = (block * p_.kv_heads + h) * p_.block_tokens * p_.head_dim;
    const int64_t token = t % p_.block_tokens;
    Put(key_cache_, base + d * p_.block_tokens + token, keys_[from]);
    Put(value_cache_, base + token * p_.head_dim + d, values_[from]);
  }
  void Put(Buffer& cache, int64_t at, float& value) const {
    if (p_.dtype == DType::kF32) {
      cache.as<float>()[at] = value;
      return;
    }
    const bool bf16 = p_.dtype == DType::kBf16;
    const uint16_t bits = bf16 ? F32ToBf16(value) : F32ToF16(value);
    cache.as<uint16_t>()[at] = bits;
    value = bf16 ? Bf16ToF32(bits) : F16ToF32(bits);
  }

  Problem p_;
  std::vector<float> q_, keys_, values_;
  std::vector<int32_t> table_;
  Buffer key_cache_, value_cache_;
};

class AttentionTest : public testing::TestWithParam<const KernelTable*> {
 protected:
  void SetUp() override {
    if (!GetParam()->supported(HostCpuFeatures()))
      GTEST_SKIP() << "this CPU lacks the instructions";
    kernels_ = ResolveKernels(GetParam()->isa);
  }

  // Runs rows [begin, end) of every kv head; the scratch memory is exactly what was asked for.
  void Run(const AttentionArgs& args, int64_t begin, int64_t end) const {
    const int64_t group = args.heads / args.kv_heads;
    std::vector<float> scratch(
        static_cast<size_t>(kernels_.attention_scratch_floats(group, args.head_dim)),
        std::numeric_limits<float>::quiet_NaN());
    for (int64_t head = 0; head < args.kv_heads; ++head) {
      kernels_.attention(args, begin, end, head, scratch.data());
    }
  }

  void Check(const Problem& problem) const {
    const Cache cache(problem);
    std::vector<float> out;
    Run(cache.Args(out), 0, problem.rows);
    const std::vector<double> expected = cache.Expected();
    for (size_t i = 0; i < out.size(); ++i) {
      ASSERT_NEAR(out[i], expected[i], 4e-6)
          << "head_dim " << problem.head_dim << " heads " << problem.heads << "/"
          << problem.kv_heads << " window " << problem.window << " " << Name(problem.dtype)
          << " at " << i;
    }
  }

  KernelTable kernels_;
};

TEST_P(AttentionTest, EveryHeadDimAndType) {
  for (const int64_t head_dim : {12, 64, 72, 80, 96, 128, 256}) {
    for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF16}) {
      Check({.head_dim = head_dim, .dtype = dtype});
    }
  }
}

TEST_P(AttentionTest, EveryGroup) {
  struct Case {
    int64_t heads, kv_heads;
  };
  for (const Case c : {Case{1, 1}, Case{4, 4}, Case{4, 1}, Case{9, 3}, Case{10, 2}, Case{14, 2},
                       Case{16, 2}, Case{32, 1}, Case{71, 1}}) {
    Check({.heads = c.heads, .kv_heads = c.kv_heads, .head_dim = 16, .tokens = 45, .rows = 45});
  }
}

TEST_P(AttentionTest, DecodeAtEveryFill) {
  for (const int64_t tokens : {1, 2, 31, 32, 33, 64, 65, 300}) {
    Check({.tokens = tokens, .rows = 1, .dtype = DType::kBf16});
  }
}

TEST_P(AttentionTest, SlidingWindow) {
  for (const int64_t window : {1, 2, 16, 31, 32, 33, 64, 1000}) {
    Check({.head_dim = 16, .tokens = 150, .rows = 150, .window = window});
    Check({.head_dim = 16, .tokens = 150, .rows = 1, .window = window});
  }
}

TEST_P(AttentionTest, LargerBlocks) {
  Check({.head_dim = 24, .tokens = 200, .rows = 130, .block_tokens = 64});
}

TEST_P(AttentionTest, RowsDoNotDependOnTheirRange) {
  for (const int64_t window : {0, 20}) {
    for (const int64_t kv_heads : {1, 2, 6}) {
      const Problem problem{.kv_heads = kv_heads,
                            .head_dim = 72,
                            .tokens = 133,
                            .rows = 100,
                            .window = window,
                            .dtype = DType::kBf16};
      const Cache cache(problem);
      std::vector<float> whole, parts;
      Run(cache.Args(whole), 0, problem.rows);
      for (const int64_t step : {1, 3, 32}) {
        const AttentionArgs args = cache.Args(parts);
        for (int64_t row = 0; row < problem.rows; row += step) {
          Run(args, row, std::min(row + step, problem.rows));
        }
        ASSERT_EQ(std::memcmp(whole.data(), parts.data(), whole.size() * sizeof(float)), 0)
            << "window " << window << " kv_heads " << kv_heads << " step " << step;
      }
    }
  }
}

TEST_P(AttentionTest, LargeScoresDoNotOverflow) {
  const Problem problem{.head_dim = 16, .tokens = 40, .rows = 40};
  const Cache cache(problem);
  std::vector<float> out;
  AttentionArgs args = cache.Args(out);
  args.scale = 1e4f;  // a softmax that picks one key
  Run(args, 0, problem.rows);
  for (const float value : out) ASSERT_TRUE(std::isfinite(value));
}

std::string IsaName(const testing::TestParamInfo<const KernelTable*>& info) {
  return info.param->isa;
}
INSTANTIATE_TEST_SUITE_P(EachIsa, AttentionTest,
                         testing::ValuesIn(AllKernelTables().begin(), AllKernelTables().end()),
                         IsaName);

}  // namespace
}  // namespace octavo
