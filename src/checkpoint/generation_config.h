// What a model directory says about generating: generation_config.json, and the token ids of
// config.json.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/hf_config.h"

namespace octavo {

struct GenerationConfig {
  // Every token that ends a text: eos_token_id of both files, each once, ascending.
  std::vector<int64_t> eos_token_ids;
  std::optional<int64_t> bos_token_id;  // generation_config.json's, else config.json's
  std::optional<int64_t> pad_token_id;

  // Set only where generation_config.json sets them.
  std::optional<bool> do_sample;
  std::optional<double> temperature;         // >= 0
  std::optional<int64_t> top_k;              // >= -1; 0 and -1: all
  std::optional<double> top_p;               // (0, 1]
  std::optional<double> min_p;               // [0, 1]
  std::optional<double> repetition_penalty;  // > 0

  // `directory` may lack generation_config.json. Throws kDataLoss or kInvalidArgument naming the
  // file and the field.
  static GenerationConfig FromDirectory(const std::string& directory, const HfConfig& config);
};

}  // namespace octavo
