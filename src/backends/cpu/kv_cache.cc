#include "backends/cpu/kv_cache.h"

#include <fmt/format.h>
#include <octavo/error.h>

#include <algorithm>
#include <limits>

#include "backends/backend.h"

namespace octavo::cpu {

static_assert(kKvBlockTokens % kAttentionKeys == 0);

namespace {

constexpr int64_t kReadPastEnd = 128;  // bytes that attention may read past the last value

}  // namespace

KvCache::KvCache(const std::vector<KvLayer>& layers, DType dtype, const KernelTable& kernels)
    : layers_(layers), dtype_(dtype), kernels_(kernels) {
  for (const KvLayer& layer : layers_) {
    layer_offsets_.push_back(block_elements_);
    block_elements_ += 2 * layer.kv_heads * layer.head_dim * kKvBlockTokens;
  }
}

void KvCache::Allocate(int64_t blocks) {
  const int64_t limit =
      std::numeric_limits<int32_t>::max() - 1;  // block tables hold 32-bit numbers
  const uint64_t bytes = bytes_per_block();
  if (blocks < 0 || blocks > limit ||
      (bytes > 0 && static_cast<uint64_t>(blocks) > (uint64_t{1} << 62) / bytes)) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("a KV cache of {} blocks of {} bytes cannot be made", blocks, bytes));
  }
  buffer_ = Buffer();  // the old one goes first
  blocks_ = 0;
  buffer_ = Buffer(static_cast<size_t>(blocks) * bytes + kReadPastEnd);
  blocks_ = blocks;
}

template <typename Element>
void KvCache::StoreAs(const KvLayer& layer, Element* block, int64_t offset, const float* key,
                      const float* value) noexcept {
  const int64_t head_elements = layer.head_dim * kKvBlockTokens;
  Element* values = block + layer.kv_heads * head_elements;
  for (int64_t head = 0; head < layer.kv_heads; ++head) {
    Element* keys_of_head = block + head * head_elements + offset;  // [head_dim, kKvBlockTokens]
    for (int64_t begin = 0; begin < layer.head_dim; begin += kAttentionKeys) {
      Element part[kAttentionKeys];
      const int64_t count = std::min(kAttentionKeys, layer.head_dim - begin);
      kernels_.rows.from_f32(dtype_, key + head * layer.head_dim + begin, count, part);
      for (int64_t i = 0; i < count; ++i) keys_of_head[(begin + i) * kKvBlockTokens] = part[i];
    }
    kernels_.rows.from_f32(dtype_, value + head * layer.head_dim, layer.head_dim,
                           values + head * head_elements + offset * layer.head_dim);
  }
}

void KvCache::Store(int32_t layer, int64_t block, int64_t offset, const float* key,
                    const float* value) noexcept {
  const int64_t at = block * block_elements_ + layer_offsets_[static_cast<size_t>(layer)];
  const KvLayer& shape = layers_[static_cast<size_t>(layer)];
  if (dtype_ == DType::kF32) {
    StoreAs(shape, buffer_.as<float>() + at, offset, key, value);
  } else {
    StoreAs(shape, buffer_.as<uint16_t>() + at, offset, key, value);
  }
}

KvView KvCache::View(int32_t layer) const {
  const KvLayer& shape = layers_[static_cast<size_t>(layer)];
  const int64_t bytes = ByteSize(dtype_);
  KvView view;
  view.dtype = dtype_;
  view.block_tokens = kKvBlockTokens;
  view.block_stride = block_elements_;
  view.head_stride = shape.head_dim * kKvBlockTokens;
  const char* keys = buffer_.as<char>() + layer_offsets_[static_cast<size_t>(layer)] * bytes;
  view.keys = keys;
  view.values = keys + shape.kv_heads * view.head_stride * bytes;
  return view;
}

}  // namespace octavo::cpu
