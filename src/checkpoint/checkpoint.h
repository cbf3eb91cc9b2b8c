// A Hugging Face model directory: config.json and the weights in one or many .safetensors files.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "checkpoint/hf_config.h"
#include "checkpoint/safetensors_file.h"

namespace octavo {

// A tensor and the file that holds it.
struct CheckpointTensor {
  const SafetensorsFile* file = nullptr;
  const TensorEntry* entry = nullptr;
};

class Checkpoint {
 public:
  // Opens `directory`: model.safetensors.index.json with its shards, else model.safetensors, else
  // the only
  // *.safetensors file there is. Checks every header and that each tensor of the index is in the
  // shard it names. Throws Error naming the file: kNotFound for a missing config.json, shard or
  // weights (a directory with only pytorch_model.bin says that safetensors is needed), kDataLoss
  // for damage.
  static Checkpoint Open(const std::string& directory);

  const std::string& directory() const { return directory_; }
  const HfConfig& config() const { return config_; }
  const CheckpointTensor* Find(std::string_view name) const;  // null when absent
  // All tensors, by file and offset.
  const std::vector<CheckpointTensor>& tensors() const { return tensors_; }
  uint64_t total_bytes() const;  // of tensor data

 private:
  Checkpoint() = default;
  std::string directory_;
  HfConfig config_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::vector<CheckpointTensor> tensors_;
  std::unordered_map<std::string_view, size_t> index_;
};

// The directory of a model given by the user: an existing directory as it is, else `org/name`
// looked up offline in the Hugging Face cache (HF_HUB_CACHE, else HF_HOME/hub, else
// ~/.cache/huggingface/hub; refs/main, or `revision`, -> snapshots/...). Throws kNotFound saying
// where it looked.
std::string ResolveModelDirectory(const std::string& model, const std::string& revision = "main");

}  // namespace octavo
