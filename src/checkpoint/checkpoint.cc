#include "checkpoint/checkpoint.h"

#include <fmt/format.h>
#include <octavo/error.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <system_error>
#include <utility>

#include "base/file.h"
#include "base/log.h"
#include "checkpoint/printable.h"

namespace octavo {
namespace {

constexpr const char* kIndexName = "model.safetensors.index.json";
constexpr const char* kSingleName = "model.safetensors";

// Up to eight of `names`, for a message.
std::string Join(const std::vector<std::string>& names) {
  constexpr size_t kMost = 8;
  std::string text;
  for (size_t i = 0; i < names.size() && i < kMost; ++i) {
    text += fmt::format("{}{}", i == 0 ? "" : ", ", Printable(names[i]));
  }
  if (names.size() > kMost) text += fmt::format(" and {} more", names.size() - kMost);
  return text;
}

std::vector<std::string> FilesWithExtension(const std::string& directory,
                                            const std::set<std::string>& extensions) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    if (extensions.contains(entry->path().extension().string())) {
      names.push_back(entry->path().filename().string());
    }
  }
  if (error) {
    throw Error(ErrorCode::kUnavailable,
                fmt::format("{}: cannot be listed: {}", directory, error.message()));
  }
  std::sort(names.begin(), names.end());
  return names;
}

// A name that stays in the folder it is looked up in.
bool IsPlainFileName(const std::string& name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos;
}

// weight_map of an index: tensor -> shard.
using WeightMap = std::map<std::string, std::string>;

WeightMap ReadIndex(const std::string& path) {
  const HfConfig index = HfConfig::FromFile(path);
  WeightMap map = index.StringMap("weight_map");
  if (map.empty()) {
    throw Error(ErrorCode::kDataLoss,
                fmt::format("{}: expected weight_map to name the shard of each tensor, found {}",
                            path, index.Has("weight_map") ? "it empty" : "none"));
  }
  for (const auto& [tensor, shard] : map) {
    if (!IsPlainFileName(shard)) {
      throw Error(ErrorCode::kDataLoss,
                  fmt::format("{}: tensor {}: expected the plain name of a file beside the index, "
                              "found \"{}\"",
                              path, Printable(tensor), Printable(shard)));
    }
  }
  return map;
}

std::vector<std::string> ShardsOf(const WeightMap& map) {
  std::set<std::string> shards;
  for (const auto& [tensor, shard] : map) shards.insert(shard);
  return {shards.begin(), shards.end()};
}

// Every shard must be there before any is read.
void CheckShardsExist(const std::string& directory, const std::vector<std::string>& shards) {
  std::vector<std::string> missing;
  for (const std::string& shard : shards) {
    const std::string path = directory + "/" + shard;
    if (FileExists(path)) continue;
    missing.push_back(HasEntry(path) ? shard + " (a symbolic link to a file that does not exist)"
                                     : shard);
  }
  if (missing.empty()) return;
  const bool single = FileExists(directory + "/" + kSingleName);
  throw Error(
      ErrorCode::kNotFound,
      fmt::format(
          "{}/{} lists {} shards, {} of them missing: {}{}", directory, kIndexName, shards.size(),
          missing.size(), Join(missing),
          single ? fmt::format(" ({} is there: remove the index to load that)", kSingleName) : ""));
}

// The name of the file that holds all weights of a directory without an index.
std::string FindSingleFile(const std::string& directory) {
  if (HasEntry(directory + "/" + kSingleName)) return kSingleName;
  const std::vector<std::string> names = FilesWithExtension(directory, {".safetensors"});
  if (names.size() == 1) return names.front();
  if (names.size() > 1) {
    throw Error(
        ErrorCode::kNotFound,
        fmt::format(
            "{}: {} .safetensors files but neither {} nor {} to say which hold the model: {}",
            directory, names.size(), kSingleName, kIndexName, Join(names)));
  }
  const std::vector<std::string> others =
      FilesWithExtension(directory, {".bin", ".pt", ".pth", ".gguf", ".h5", ".msgpack"});
  if (!others.empty()) {
    throw Error(
        ErrorCode::kNotFound,
        fmt::format("{}: no .safetensors file, only {}: Octavo reads safetensors, so convert the "
                    "weights (transformers' save_pretrained writes them) or get that version of "
                    "the model",
                    directory, Join(others)));
  }
  throw Error(ErrorCode::kNotFound, fmt::format("{}: no weights: expected {} or {} with its shards",
                                                directory, kSingleName, kIndexName));
}

HfConfig ReadConfig(const std::string& directory) {
  const std::string path = directory + "/config.json";
  if (!HasEntry(path)) {
    throw Error(
        ErrorCode::kNotFound,
        fmt::format("{}: config.json not found: expected a Hugging Face model directory, with "
                    "config.json and .safetensors files",
                    directory));
  }
  return HfConfig::FromFile(path);
}

using Files = std::vector<std::unique_ptr<SafetensorsFile>>;

std::string FileName(const SafetensorsFile& file) {
  return std::filesystem::path(file.path()).filename().string();
}

// Each tensor of the index must be in the shard that it names.
void CheckWeightMap(const std::string& directory, const WeightMap& map, const Files& files) {
  std::map<std::string, const SafetensorsFile*> by_name;
  for (const auto& file : files) by_name[FileName(*file)] = file.get();
  for (const auto& [tensor, shard] : map) {
    if (by_name.at(shard)->Find(tensor) != nullptr) continue;
    std::string found = "in none of the shards";
    for (const auto& [name, file] : by_name) {
      if (file->Find(tensor) != nullptr) found = "in " + name;
    }
    throw Error(ErrorCode::kDataLoss,
                fmt::format("{}/{}: tensor {}: expected in {}, found {}", directory, kIndexName,
                            Printable(tensor), shard, found));
  }
}

}  // namespace

Checkpoint Checkpoint::Open(const std::string& directory) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(directory, ignored)) {
    throw Error(ErrorCode::kNotFound,
                fmt::format("{}: expected a model directory, found {}", directory,
                            HasEntry(directory) ? "something else" : "nothing"));
  }
  Checkpoint checkpoint;
  checkpoint.directory_ = directory;
  checkpoint.config_ = ReadConfig(directory);

  WeightMap map;
  std::vector<std::string> names;
  if (HasEntry(directory + "/" + kIndexName)) {
    map = ReadIndex(directory + "/" + kIndexName);
    names = ShardsOf(map);
    CheckShardsExist(directory, names);
  } else {
    names = {FindSingleFile(directory)};
  }
  for (const std::string& name : names) {
    checkpoint.files_.push_back(std::make_unique<SafetensorsFile>(directory + "/" + name));
  }
  CheckWeightMap(directory, map, checkpoint.files_);

  for (const auto& file : checkpoint.files_) {
    for (const TensorEntry& entry : file->tensors()) {
      const auto mapped = map.find(entry.name);
      if (mapped != map.end() && mapped->second != FileName(*file)) {
        LogWarning(fmt::format("{}: tensor {} is not used from this file: the index names {}",
                               file->path(), Printable(entry.name), mapped->second));
        continue;
      }
      const auto [known, added] = checkpoint.index_.emplace(entry.name, checkpoint.tensors_.size());
      if (!added) {
        throw Error(
            ErrorCode::kDataLoss,
            fmt::format("tensor {} is in {} and in {}, and the index does not say which to use",
                        Printable(entry.name), checkpoint.tensors_[known->second].file->path(),
                        file->path()));
      }
      checkpoint.tensors_.push_back({.file = file.get(), .entry = &entry});
    }
  }
  return checkpoint;
}

const CheckpointTensor* Checkpoint::Find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

uint64_t Checkpoint::total_bytes() const {
  uint64_t bytes = 0;
  for (const CheckpointTensor& tensor : tensors_) bytes += tensor.entry->bytes;
  return bytes;
}

}  // namespace octavo
