#include "engine/block_pool.h"

#include <cstddef>

namespace octavo {

BlockPool::BlockPool(int64_t blocks) : total_(blocks) {
  free_.reserve(static_cast<size_t>(blocks));
  for (int64_t block = blocks - 1; block >= 0; --block)
    free_.push_back(static_cast<int32_t>(block));
}

bool BlockPool::Allocate(int64_t count, std::vector<int32_t>& table) {
  if (count > available()) return false;
  for (int64_t i = 0; i < count; ++i) {
    table.push_back(free_.back());
    free_.pop_back();
  }
  return true;
}

void BlockPool::Free(std::vector<int32_t>& table) {
  for (auto block = table.rbegin(); block != table.rend(); ++block) free_.push_back(*block);
  table.clear();
}

}  // namespace octavo
