#include "checkpoint/generation_config.h"

#include <fmt/format.h>
#include <octavo/error.h>
#include <sys/stat.h>

#include <cmath>
#include <set>

namespace octavo {
namespace {

// Negative ids stand for "none" in older configurations.
std::optional<int64_t> TokenId(const HfConfig& config, const char* key) {
  const std::vector<int64_t> ids = config.IntList(key);
  if (ids.empty() || ids.front() < 0) return std::nullopt;
  return ids.front();
}

std::optional<double> Number(const HfConfig& config, const char* key, const char* expected,
                             bool (*valid)(double)) {
  if (!config.Has(key)) return std::nullopt;
  const double value = config.Float(key);
  if (!std::isfinite(value) || !valid(value)) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("{}: {}: expected a number {}, found {}",
                                                         config.path(), key, expected, value));
  }
  return value;
}

}  // namespace

GenerationConfig GenerationConfig::FromDirectory(const std::string& directory,
                                                 const HfConfig& config) {
  const std::string path = directory + "/generation_config.json";
  HfConfig file;
  struct stat link;
  // A dangling link is there too, and reading it says so.
  if (lstat(path.c_str(), &link) == 0) file = HfConfig::FromFile(path);

  GenerationConfig result;
  std::set<int64_t> eos;
  for (const HfConfig* source : {&config, static_cast<const HfConfig*>(&file)}) {
    for (const int64_t id : source->IntList("eos_token_id")) {
      if (id >= 0) eos.insert(id);
    }
  }
  result.eos_token_ids.assign(eos.begin(), eos.end());
  result.bos_token_id = TokenId(file.Has("bos_token_id") ? file : config, "bos_token_id");
  result.pad_token_id = TokenId(file.Has("pad_token_id") ? file : config, "pad_token_id");

  if (file.Has("do_sample")) result.do_sample = file.Bool("do_sample", false);
  result.temperature = Number(file, "temperature", ">= 0", [](double x) { return x >= 0; });
  result.top_p = Number(file, "top_p", "in (0, 1]", [](double x) { return x > 0 && x <= 1; });
  result.min_p = Number(file, "min_p", "in [0, 1]", [](double x) { return x >= 0 && x <= 1; });
  result.repetition_penalty =
      Number(file, "repetition_penalty", "> 0", [](double x) { return x > 0; });
  if (file.Has("top_k")) {
    result.top_k = file.Int("top_k");
    if (*result.top_k < -1) {
      throw Error(
          ErrorCode::kInvalidArgument,
          fmt::format("{}: top_k: expected an integer >= -1, found {}", path, *result.top_k));
    }
  }
  return result;
}

}  // namespace octavo
