// The fixtures' Hugging Face cache as a cache has to be: with links.
#pragma once

#include <filesystem>
#include <stdexcept>
#include <string>

#include "test_support.h"

namespace octavo::testing {

inline constexpr const char* kHfCacheSnapshot =
    "models--acme--tiny-llama/snapshots/81612dc9d8934f4569aab169c6a7be58b83aa7d5";

// storage/hf_cache under `target`, with the links of its snapshot as links: where the fixtures were
// stored without links, a file that holds the target's name stands in for each.
inline void CopyHfCache(const std::filesystem::path& target) {
  namespace fs = std::filesystem;
  const fs::path source = FixturePath("storage/hf_cache");
  fs::copy(source, target, fs::copy_options::recursive | fs::copy_options::copy_symlinks);
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(target)) {
    // The fixtures may lie in folders that cannot be written to.
    if (entry.is_directory() && !entry.is_symlink()) {
      fs::permissions(entry.path(), fs::perms::owner_all, fs::perm_options::add);
    }
  }
  for (const fs::directory_entry& entry : fs::directory_iterator(target / kHfCacheSnapshot)) {
    if (entry.is_symlink()) continue;
    const std::string link = ReadWholeFile(entry.path().string());
    if (!link.starts_with("../../blobs/")) {
      throw std::runtime_error(entry.path().string() + " is no link into the cache");
    }
    fs::remove(entry.path());
    fs::create_symlink(link, entry.path());
  }
}

}  // namespace octavo::testing
