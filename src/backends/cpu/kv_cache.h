// The paged KV cache of the CPU backend. A block holds kKvBlockTokens positions of every layer:
//   [block][layer][keys, values][kv_head][block_tokens * head_dim]
// so that memory becomes resident block by block, whatever the number of layers. Of a kv head, keys
// are [head_dim, block_tokens] and values [block_tokens, head_dim], as attention reads them
// (kernel_table.h).
#pragma once

#include <cstdint>
#include <vector>

#include "backends/cpu/plan.h"
#include "kernels/kernel_table.h"
#include "tensor/buffer.h"

namespace octavo::cpu {

class KvCache {
 public:
  KvCache(const std::vector<KvLayer>& layers, DType dtype, const KernelTable& kernels);

  void Allocate(int64_t blocks);
  int64_t blocks() const { return blocks_; }
  uint64_t bytes_per_block() const {
    return static_cast<uint64_t>(block_elements_ * ByteSize(dtype_));
  }

  // Writes the key and value of one token, [kv_heads * head_dim] each, to place `offset` of
  // `block`.
  void Store(int32_t layer, int64_t block, int64_t offset, const float* key,
             const float* value) noexcept;

  // All of the view but the block table.
  KvView View(int32_t layer) const;

 private:
  template <typename Element>
  void StoreAs(const KvLayer& layer, Element* block, int64_t offset, const float* key,
               const float* value) noexcept;

  std::vector<KvLayer> layers_;
  std::vector<int64_t> layer_offsets_;  // elements into a block
  DType dtype_;
  const KernelTable& kernels_;
  int64_t block_elements_ = 0;
  int64_t blocks_ = 0;
  Buffer buffer_;
};

}  // namespace octavo::cpu
