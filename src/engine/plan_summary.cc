#include "engine/plan_summary.h"

#include <fmt/format.h>

#include <map>
#include <string>
#include <vector>

namespace octavo {
namespace {

double ToMiB(uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

std::string ParameterCount(int64_t count) {
  const auto value = static_cast<double>(count);
  if (count >= 1'000'000'000) return fmt::format("{:.2f} billion parameters", value / 1e9);
  if (count >= 100'000) return fmt::format("{:.1f} million parameters", value / 1e6);
  return fmt::format("{} parameters", count);
}

}  // namespace

std::string SummarizePlan(const ModelPlan& model) {
  int64_t parameters = 0;
  std::map<std::string, int64_t> becomes;  // quantized format -> weights
  for (const PlannedWeight& weight : model.plan.weights) {
    parameters += ElementCount(weight.source.entry->shape).value_or(0);
    if (!weight.recipe.keep) ++becomes[ToString(weight.format)];
  }
  std::string quantized;
  for (const auto& [format, count] : becomes) {
    quantized += fmt::format("{}{} of {} weights become {}", quantized.empty() ? "" : ", ", count,
                             model.plan.weights.size(), format);
  }
  const std::vector<std::string> names = model.checkpoint.config().StringList("architectures");
  return fmt::format("{}, {}: {}; {:.1f} MiB to read, {:.1f} MiB in memory",
                     names.empty() ? "model" : names.front(), ParameterCount(parameters),
                     quantized.empty() ? fmt::format("{} weights stay as they are stored",
                                                     model.plan.weights.size())
                                       : quantized + ", the others stay as they are stored",
                     ToMiB(model.plan.bytes_read), ToMiB(model.plan.bytes_kept));
}

}  // namespace octavo
