// Attention over a paged KV cache (kernel_table.h), over a vector type V. All query heads of a kv
// head are computed together, so that its keys and values are loaded once for the group; several
// query rows join them in prefill. A (row, head) pair is a "unit". Softmax is online: one pass over
// the keys, kKeys at a time.
//
// A row's result does not depend on the rows computed with it: keys are taken in steps that lie
// fixed in the sequence, each unit is summed in the same order whatever its tile, and a key that a
// row must not see adds an exact zero (as long as the values in the cache are finite).
#pragma once

#include <cstdint>

#include "kernels/generic/math-inl.h"
#include "kernels/kernel_table.h"

namespace octavo {
namespace {

template <typename V, DType kType>
struct KvElement;
template <typename V>
struct KvElement<V, DType::kBf16> {
  using Type = uint16_t;
  static typename V::F Load(const Type* p) { return V::LoadBf16(p); }
};
template <typename V>
struct KvElement<V, DType::kF16> {
  using Type = uint16_t;
  static typename V::F Load(const Type* p) { return V::LoadF16(p); }
};
template <typename V>
struct KvElement<V, DType::kF32> {
  using Type = float;
  static typename V::F Load(const Type* p) { return V::Load(p); }
};

template <typename V>
struct PagedAttention {
  using F = typename V::F;
  static constexpr int64_t kLanes = V::kLanes;
  static constexpr int64_t kKeys = kAttentionKeys;       // keys of a step
  static constexpr int64_t kColumns = 2 * kLanes;        // columns of a register tile
  static constexpr int64_t kUnits = V::kAttentionUnits;  // units of a register tile
  static constexpr int64_t kTileUnits = 24;              // units that share a pass over the keys
  static constexpr int64_t kStatePad = 16;               // of the arrays with a float per unit

  static constexpr int64_t RoundUp(int64_t value, int64_t to) { return (value + to - 1) / to * to; }
  static int64_t RowsPerTile(int64_t group) { return group < kTileUnits ? kTileUnits / group : 1; }

  // The scratch memory of a tile.
  struct Tile {
    int64_t units;  // rows * group
    int64_t group;
    int64_t out_stride;
    float* q;          // [ceil(units / kUnits)][head_dim][kUnits], times the scale
    float* out;        // [units padded][out_stride], not yet divided by `sums`
    float* scores;     // [units padded][kKeys]: q.k, then the probabilities
    float* largest;    // [units padded] of the scores so far
    float* sums;       // [units padded] of exp(score - largest)
    float* factors;    // [units padded] what this step multiplies `sums` and `out` with
    float* step_sums;  // [units padded]
  };

  static int64_t PaddedUnits(int64_t group) {
    return RoundUp(RoundUp(RowsPerTile(group) * group, kUnits), kStatePad);
  }
  static int64_t ScratchFloats(int64_t group, int64_t head_dim) {
    const int64_t row = head_dim + RoundUp(head_dim, kColumns) + kKeys + 4;
    return PaddedUnits(group) * row;
  }
  static Tile Carve(float* scratch, int64_t group, int64_t head_dim) {
    const int64_t units = PaddedUnits(group);
    Tile tile = {};
    tile.group = group;
    tile.out_stride = RoundUp(head_dim, kColumns);
    tile.largest = scratch;
    tile.sums = tile.largest + units;
    tile.factors = tile.sums + units;
    tile.step_sums = tile.factors + units;
    tile.scores = tile.step_sums + units;
    tile.out = tile.scores + units * kKeys;
    tile.q = tile.out + units * tile.out_stride;
    return tile;
  }

  // The keys [begin, end) of a step that a row may see.
  struct Range {
    int64_t begin;
    int64_t end;
    bool empty() const { return begin >= end; }
  };
  static Range Visible(const AttentionArgs& args, int64_t row, int64_t step) {
    const int64_t position = args.first_position + row;
    const int64_t oldest = args.window > 0 ? position - args.window + 1 : 0;
    const int64_t begin = oldest - step * kKeys;
    const int64_t end = position + 1 - step * kKeys;
    return {begin > 0 ? begin : 0, end < kKeys ? end : kKeys};
  }

  // c[unit, 0:kColumns) = (kAdd: factors[unit] * c +) sum over i < steps of a(unit, i) * b[i,
  // 0:kColumns), for kCount units; a(unit, i) lies at a[unit * kUnitStride + i * kStepStride].
  template <typename Element, int kCount, int64_t kUnitStride, int64_t kStepStride, bool kAdd>
  static void Multiply(const float* a, const typename Element::Type* b, int64_t b_stride,
                       int64_t steps, const float* factors, float* c, int64_t c_stride) {
    F sums[kCount][2];
#pragma GCC unroll 12
    for (int unit = 0; unit < kCount; ++unit) {
      if constexpr (kAdd) {
        const F factor = V::Set(factors[unit]);
        sums[unit][0] = V::Mul(factor, V::Load(c + unit * c_stride));
        sums[unit][1] = V::Mul(factor, V::Load(c + unit * c_stride + kLanes));
      } else {
        sums[unit][0] = V::Zero();
        sums[unit][1] = V::Zero();
      }
    }
    for (int64_t i = 0; i < steps; ++i) {
      const F b0 = Element::Load(b);
      const F b1 = Element::Load(b + kLanes);
#pragma GCC unroll 12
      for (int unit = 0; unit < kCount; ++unit) {
        const F x = V::Set(a[unit * kUnitStride]);
        sums[unit][0] = V::MulAdd(x, b0, sums[unit][0]);
        sums[unit][1] = V::MulAdd(x, b1, sums[unit][1]);
      }
      a += kStepStride;
      b += b_stride;
    }
#pragma GCC unroll 12
    for (int unit = 0; unit < kCount; ++unit) {
      V::Store(c + unit * c_stride, sums[unit][0]);
      V::Store(c + unit * c_stride + kLanes, sums[unit][1]);
    }
  }

  // The same for `count` units, at least; as many more as there is no tile for. Those are padding.
  template <typename Element, int64_t kUnitStride, int64_t kStepStride, bool kAdd, typename... Args>
  static void MultiplyUnits(int64_t count, Args... args) {
#define OCTAVO_UNITS(n)                                                       \
  if constexpr ((n) <= kUnits) {                                              \
    if (count <= (n) || (n) == kUnits) {                                      \
      return Multiply<Element, (n), kUnitStride, kStepStride, kAdd>(args...); \
    }                                                                         \
  }
    OCTAVO_UNITS(1)
    OCTAVO_UNITS(2)
    OCTAVO_UNITS(3)
    OCTAVO_UNITS(4)
    OCTAVO_UNITS(6)
    OCTAVO_UNITS(8)
    OCTAVO_UNITS(12)
#undef OCTAVO_UNITS
  }

  static void LoadQueries(const AttentionArgs& args, int64_t row_begin, int64_t kv_head,
                          const Tile& tile) {
    for (int64_t unit = 0; unit < RoundUp(tile.units, kUnits); ++unit) {
      float* q = tile.q + unit / kUnits * kUnits * args.head_dim + unit % kUnits;
      const int64_t row = row_begin + unit / tile.group;
      const int64_t head = kv_head * tile.group + unit % tile.group;
      const float* source = args.q + row * args.q_stride + head * args.head_dim;
      for (int64_t i = 0; i < args.head_dim; ++i) {
        q[i * kUnits] = unit < tile.units ? source[i] * args.scale : 0.0f;
      }
      for (int64_t i = 0; i < tile.out_stride; ++i) tile.out[unit * tile.out_stride + i] = 0.0f;
    }
    for (int64_t unit = 0; unit < RoundUp(tile.units, kStatePad); ++unit) {
      tile.largest[unit] = -__builtin_inff();
      tile.sums[unit] = 0.0f;
      tile.factors[unit] = 0.0f;
      tile.step_sums[unit] = 0.0f;
    }
  }

  template <typename Element>
  static void ComputeScores(const AttentionArgs& args, const Tile& tile,
                            const typename Element::Type* keys) {
    for (int64_t unit = 0; unit < tile.units; unit += kUnits) {
      for (int64_t column = 0; column < kKeys; column += kColumns) {
        MultiplyUnits<Element, 1, kUnits, false>(tile.units - unit, tile.q + unit * args.head_dim,
                                                 keys + column, args.kv.block_tokens, args.head_dim,
                                                 static_cast<const float*>(nullptr),
                                                 tile.scores + unit * kKeys + column, kKeys);
      }
    }
  }

  // Turns a unit's scores into exp(score - largest so far), zero where it must not see the key.
  static void ExponentiateUnit(const Tile& tile, int64_t unit, Range visible) {
    float* scores = tile.scores + unit * kKeys;
    if (visible.empty()) {
      for (int64_t i = 0; i < kKeys; ++i) scores[i] = 0.0f;
      tile.factors[unit] = 0.0f;  // the exponent of 1
      tile.step_sums[unit] = 0.0f;
      return;
    }
    for (int64_t i = 0; i < visible.begin; ++i) scores[i] = -__builtin_inff();
    for (int64_t i = visible.end; i < kKeys; ++i) scores[i] = -__builtin_inff();
    F top = V::Set(tile.largest[unit]);
    for (int64_t i = 0; i < kKeys; i += kLanes) top = V::Max(top, V::Load(scores + i));
    const float largest = V::Largest(top);
    const F shift = V::Set(largest);
    F sum = V::Zero();
    for (int64_t i = 0; i < kKeys; i += kLanes) {
      const F p = Math<V>::Exp(V::Sub(V::Load(scores + i), shift));
      V::Store(scores + i, p);
      sum = V::Add(sum, p);
    }
    tile.step_sums[unit] = V::Sum(sum);
    tile.factors[unit] = tile.largest[unit] - largest;
    tile.largest[unit] = largest;
  }

  static void Exponentiate(const AttentionArgs& args, const Tile& tile, int64_t row_begin,
                           int64_t step) {
    for (int64_t unit = 0; unit < tile.units; unit += tile.group) {
      const Range visible = Visible(args, row_begin + unit / tile.group, step);
      for (int64_t i = 0; i < tile.group; ++i) ExponentiateUnit(tile, unit + i, visible);
    }
    for (int64_t unit = 0; unit < tile.units; unit += kLanes) {
      const F factor = Math<V>::Exp(V::Load(tile.factors + unit));
      V::Store(tile.factors + unit, factor);
      V::Store(tile.sums + unit,
               V::MulAdd(V::Load(tile.sums + unit), factor, V::Load(tile.step_sums + unit)));
    }
  }

  template <typename Element>
  static void AddValues(const AttentionArgs& args, const Tile& tile, int64_t row_begin,
                        int64_t step, const typename Element::Type* values) {
    for (int64_t unit = 0; unit < tile.units; unit += kUnits) {
      const int64_t last = (unit + kUnits < tile.units ? unit + kUnits : tile.units) - 1;
      // Rows are in order: the first sees the oldest key and the last the newest.
      const int64_t begin = Visible(args, row_begin + unit / tile.group, step).begin;
      const int64_t end = Visible(args, row_begin + last / tile.group, step).end;
      if (begin >= end) continue;  // nothing seen: the factors are 1 and the sums 0
      for (int64_t column = 0; column < args.head_dim; column += kColumns) {
        MultiplyUnits<Element, kKeys, 1, true>(
            tile.units - unit, tile.scores + unit * kKeys + begin,
            values + begin * args.head_dim + column, args.head_dim, end - begin,
            tile.factors + unit, tile.out + unit * tile.out_stride + column, tile.out_stride);
      }
    }
  }

  static void StoreRows(const AttentionArgs& args, const Tile& tile, int64_t row_begin,
                        int64_t kv_head) {
    for (int64_t unit = 0; unit < tile.units; ++unit) {
      const int64_t row = row_begin + unit / tile.group;
      const int64_t head = kv_head * tile.group + unit % tile.group;
      float* out = args.out + row * args.out_stride + head * args.head_dim;
      const float* from = tile.out + unit * tile.out_stride;
      const F sum = V::Set(tile.sums[unit]);
      for (int64_t i = 0; i < args.head_dim; i += kLanes) {
        const int64_t left = args.head_dim - i;
        V::StorePart(out + i, V::Div(V::Load(from + i), sum), left < kLanes ? left : kLanes);
      }
    }
  }

  template <typename Element>
  static void RunTile(const AttentionArgs& args, int64_t row_begin, int64_t row_end,
                      int64_t kv_head, Tile tile) {
    using Type = typename Element::Type;
    tile.units = (row_end - row_begin) * tile.group;
    LoadQueries(args, row_begin, kv_head, tile);
    const int64_t oldest = args.window > 0 ? args.first_position + row_begin - args.window + 1 : 0;
    const int64_t steps_per_block = args.kv.block_tokens / kKeys;
    const int64_t last_step = (args.first_position + row_end - 1) / kKeys;
    for (int64_t step = oldest > 0 ? oldest / kKeys : 0; step <= last_step; ++step) {
      const int64_t block = args.kv.block_table[step / steps_per_block];
      const int64_t part = step % steps_per_block * kKeys;  // tokens into the block
      const int64_t base = block * args.kv.block_stride + kv_head * args.kv.head_stride;
      ComputeScores<Element>(args, tile, static_cast<const Type*>(args.kv.keys) + base + part);
      Exponentiate(args, tile, row_begin, step);
      AddValues<Element>(args, tile, row_begin, step,
                         static_cast<const Type*>(args.kv.values) + base + part * args.head_dim);
    }
    StoreRows(args, tile, row_begin, kv_head);
  }

  template <typename Element>
  static void RunTyped(const AttentionArgs& args, int64_t row_begin, int64_t row_end,
                       int64_t kv_head, float* scratch) {
    const int64_t group = args.heads / args.kv_heads;
    const Tile tile = Carve(scratch, group, args.head_dim);
    const int64_t rows = RowsPerTile(group);
    for (int64_t row = row_begin; row < row_end; row += rows) {
      RunTile<Element>(args, row, row + rows < row_end ? row + rows : row_end, kv_head, tile);
    }
  }

  static void Run(const AttentionArgs& args, int64_t row_begin, int64_t row_end, int64_t kv_head,
                  float* scratch) {
    switch (args.kv.dtype) {
      case DType::kF16:
        return RunTyped<KvElement<V, DType::kF16>>(args, row_begin, row_end, kv_head, scratch);
      case DType::kF32:
        return RunTyped<KvElement<V, DType::kF32>>(args, row_begin, row_end, kv_head, scratch);
      default:
        return RunTyped<KvElement<V, DType::kBf16>>(args, row_begin, row_end, kv_head, scratch);
    }
  }
};

}  // namespace
}  // namespace octavo
