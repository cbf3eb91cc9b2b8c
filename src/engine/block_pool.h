// The KV cache's blocks as numbers; their bytes belong to the backend.
#pragma once

#include <cstdint>
#include <vector>

namespace octavo {

class BlockPool {
 public:
  explicit BlockPool(int64_t blocks);

  int64_t total() const { return total_; }
  int64_t available() const { return static_cast<int64_t>(free_.size()); }
  // Appends `count` blocks to `table`; false, and nothing happens, when there are not that many.
  bool Allocate(int64_t count, std::vector<int32_t>& table);
  // Takes back every block of `table` and empties it.
  void Free(std::vector<int32_t>& table);

 private:
  int64_t total_;
  std::vector<int32_t> free_;  // the last is handed out first, so that warm memory is used again
};

}  // namespace octavo
