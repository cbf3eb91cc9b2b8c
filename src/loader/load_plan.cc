#include "loader/load_plan.h"

#include <fmt/format.h>
#include <octavo/error.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "checkpoint/printable.h"
#include "quant/module_filter.h"
#include "tensor/buffer.h"

namespace octavo {
namespace {

constexpr size_t kNamesListed = 10;  // of missing or unexpected tensors
constexpr size_t kFilesListed = 4;   // of the files that were searched
constexpr std::string_view kHeadTensor = "lm_head.weight";
constexpr uint64_t kCompareBytes = 1
                                   << 20;  // read at once of each of two tensors that are compared

// "a, b, c and 7 more"
std::string ListSome(const std::vector<std::string>& names, size_t limit) {
  const size_t listed = std::min(names.size(), limit);
  std::string text;
  for (size_t i = 0; i < listed; ++i) {
    if (i > 0) text += ", ";
    text += Printable(names[i]);
  }
  if (names.size() > listed) text += fmt::format(" and {} more", names.size() - listed);
  return text;
}

// A pre-quantized checkpoint read as if it were 16-bit would be silently wrong.
void RefusePreQuantized(const HfConfig& config) {
  for (const std::string_view field : {"quantization_config", "compression_config"}) {
    const std::optional<HfConfig> quantization = config.Object(field);
    if (!quantization) continue;
    throw Error(ErrorCode::kUnimplemented,
                fmt::format("{}: {}.quant_method is \"{}\": pre-quantized checkpoints are not "
                            "supported yet, expected the 16-bit checkpoint of the model",
                            config.path(), field, quantization->String("quant_method", "unknown")));
  }
}

// The files that hold the tensors of `checkpoint`, without their folder.
std::string SearchedFiles(const Checkpoint& checkpoint) {
  std::vector<std::string> files;
  for (const CheckpointTensor& tensor : checkpoint.tensors()) {
    std::string name = std::filesystem::path(tensor.file->path()).filename().string();
    if (files.empty() || files.back() != name) files.push_back(std::move(name));
  }
  return files.empty() ? "no file with tensors" : ListSome(files, kFilesListed);
}

void RequireAllPresent(const Checkpoint& checkpoint, const Graph& graph) {
  std::vector<std::string> missing;
  bool head_missing = false;
  for (const WeightDecl& weight : graph.weights()) {
    if (checkpoint.Find(weight.name) != nullptr) continue;
    missing.push_back(weight.name);
    head_missing = head_missing || weight.role == WeightRole::kHead;
  }
  if (missing.empty()) return;
  throw Error(
      ErrorCode::kNotFound,
      fmt::format("{}: {} of the model's tensors not found in {}: {}{}", checkpoint.directory(),
                  missing.size(), SearchedFiles(checkpoint), ListSome(missing, kNamesListed),
                  head_missing ? " (config.json does not say tie_word_embeddings: true)" : ""));
}

void CheckStoredAs(const CheckpointTensor& tensor, const WeightDecl& weight) {
  const TensorEntry& entry = *tensor.entry;
  if (!IsFloat(entry.dtype)) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("{}: tensor {} has dtype {}, expected BF16, F16, F32 or F64 for a weight",
                    tensor.file->path(), entry.name, SafetensorsName(entry.dtype)));
  }
  if (entry.shape != weight.shape) {
    throw Error(
        ErrorCode::kDataLoss,
        fmt::format("{}: tensor {} has shape {}, expected {} by config.json", tensor.file->path(),
                    entry.name, ToString(entry.shape), ToString(weight.shape)));
  }
}

// Chooses recipes and remembers which skip patterns were of use.
class RecipeChooser {
 public:
  explicit RecipeChooser(const LoadOptions& options)
      : scheme_(MakeScheme(options.quantization)),
        quantize_head_(options.quantize_lm_head),
        skip_(options.skip_modules) {
    if (quantize_head_ && scheme_ == nullptr) {
      throw Error(ErrorCode::kInvalidArgument,
                  "--quantize-lm-head needs a quantization scheme, found --quantization none");
    }
  }

  std::string scheme_name() const {
    return scheme_ ? std::string(scheme_->name()) : std::string("none");
  }

  // Sets recipe and reason.
  void Choose(const WeightDecl& weight, PlannedWeight& planned) {
    const std::string* skipped = skip_.Match(weight.name);
    planned.recipe = LinearRecipe{};
    planned.reason = ReasonToKeep(weight, skipped);
    if (!planned.reason.empty()) return;
    planned.recipe = scheme_->RecipeFor({.tensor = weight.name,
                                         .out_features = weight.out_features(),
                                         .in_features = weight.in_features(),
                                         .stored = planned.source.entry->dtype});
    planned.reason = planned.recipe.keep ? fmt::format("kept by {}", scheme_->name())
                                         : std::string(scheme_->name());
  }

  // A pattern that matches nothing is a typing error that would leave a layer quantized.
  void RequireAllUsed(const Graph& graph) const {
    const std::vector<std::string> unused = skip_.Unused();
    if (unused.empty()) return;
    std::string hint;
    for (const WeightDecl& weight : graph.weights()) {
      if (unused[0].starts_with("re:") || weight.name.find(unused[0]) == std::string::npos)
        continue;
      hint = fmt::format("; a part of a name needs a pattern: \"re:.*{}\"", unused[0]);
      break;
    }
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("--skip-modules \"{}\" matches none of the model's {} weights{}",
                            ListSome(unused, kNamesListed), graph.weights().size(), hint));
  }

 private:
  // Why a weight keeps its stored type, "" when the scheme decides.
  std::string ReasonToKeep(const WeightDecl& weight, const std::string* skipped) const {
    switch (weight.role) {
      case WeightRole::kVector:
        return weight.name.ends_with(".bias") ? "bias" : "norm";
      case WeightRole::kEmbedding:
        if (!weight.tied_head) return "embedding";
        if (!quantize_head_) return "embedding, tied head";
        break;
      case WeightRole::kHead:
        if (!quantize_head_) return "head";
        break;
      case WeightRole::kLinear:
        break;
    }
    if (scheme_ == nullptr) return "not quantized";
    if (skipped != nullptr) return fmt::format("--skip-modules {}", *skipped);
    return "";
  }

  std::unique_ptr<const QuantScheme> scheme_;
  bool quantize_head_;
  ModuleFilter skip_;
};

PlannedWeight PlanWeight(WeightId id, const WeightDecl& weight, const CheckpointTensor& source,
                         RecipeChooser& chooser) {
  CheckStoredAs(source, weight);
  PlannedWeight planned;
  planned.id = id;
  planned.source = source;
  chooser.Choose(weight, planned);
  const DType stored = source.entry->dtype;
  planned.format = planned.recipe.keep
                       ? WeightFormat::Plain(stored == DType::kF64 ? DType::kF32 : stored)
                       : planned.recipe.format;
  planned.bytes_read = source.entry->bytes;
  planned.bytes_kept = static_cast<uint64_t>(
      StoredBytes(planned.format, weight.out_features(), weight.in_features()));
  return planned;
}

// Whether two tensors hold the same values, read piece by piece.
bool SameValues(const CheckpointTensor& a, const CheckpointTensor& b) {
  if (a.entry->dtype != b.entry->dtype || a.entry->shape != b.entry->shape) return false;
  const uint64_t total = a.entry->bytes;
  Buffer buffer_a(std::min(total, kCompareBytes));
  Buffer buffer_b(std::min(total, kCompareBytes));
  for (uint64_t done = 0; done < total; done += kCompareBytes) {
    const uint64_t count = std::min(kCompareBytes, total - done);
    a.file->file().ReadAt(a.entry->offset + done, {buffer_a.as<std::byte>(), count});
    b.file->file().ReadAt(b.entry->offset + done, {buffer_b.as<std::byte>(), count});
    if (std::memcmp(buffer_a.data(), buffer_b.data(), count) != 0) return false;
  }
  return true;
}

// The embedding that serves as the head too, null when the head has a tensor of its own.
const WeightDecl* TiedEmbedding(const Graph& graph) {
  for (const WeightDecl& weight : graph.weights()) {
    if (weight.tied_head) return &weight;
  }
  return nullptr;
}

// A checkpoint whose config ties the head may store lm_head.weight all the same: usually a copy,
// but some fine-tuning tools leave a trained head there that other programs would use.
std::optional<std::string> TiedHeadWarning(const Checkpoint& checkpoint, const Graph& graph) {
  const WeightDecl* tied = TiedEmbedding(graph);
  const CheckpointTensor* head = checkpoint.Find(kHeadTensor);
  if (tied == nullptr || head == nullptr) return std::nullopt;
  if (SameValues(*checkpoint.Find(tied->name), *head)) return std::nullopt;
  return fmt::format(
      "{}: {} differs from {}, to which config.json ties it (tie_word_embeddings: "
      "true); the head uses {} and {} is not used",
      head->file->path(), kHeadTensor, tied->name, tied->name, kHeadTensor);
}

std::optional<std::string> UnexpectedWarning(const Checkpoint& checkpoint, const Graph& graph,
                                             const std::vector<std::string>& unexpected) {
  if (unexpected.empty()) return std::nullopt;
  return fmt::format("{}: {} of {} tensors are not used by the model ({} weights): {}",
                     checkpoint.directory(), unexpected.size(), checkpoint.tensors().size(),
                     graph.weights().size(), ListSome(unexpected, kNamesListed));
}

}  // namespace

LoadPlan MakeLoadPlan(const Checkpoint& checkpoint, const Graph& graph,
                      const LoadOptions& options) {
  RecipeChooser chooser(options);
  RefusePreQuantized(checkpoint.config());
  RequireAllPresent(checkpoint, graph);
  std::unordered_map<std::string_view, WeightId> ids;
  for (size_t i = 0; i < graph.weights().size(); ++i) {
    ids.emplace(graph.weights()[i].name, static_cast<WeightId>(i));
  }
  const bool tied = TiedEmbedding(graph) != nullptr;
  LoadPlan plan;
  plan.scheme = chooser.scheme_name();
  std::vector<std::string> unexpected;
  for (const CheckpointTensor& tensor : checkpoint.tensors()) {  // by file and offset
    const std::string& name = tensor.entry->name;
    const auto found = ids.find(name);
    if (found != ids.end()) {
      plan.weights.push_back(
          PlanWeight(found->second, graph.weight(found->second), tensor, chooser));
      plan.bytes_read += plan.weights.back().bytes_read;
      plan.bytes_kept += plan.weights.back().bytes_kept;
    } else if (!graph.IsIgnorable(name) && !(tied && name == kHeadTensor)) {
      unexpected.push_back(name);
    }
  }
  chooser.RequireAllUsed(graph);
  if (auto warning = UnexpectedWarning(checkpoint, graph, unexpected)) {
    plan.warnings.push_back(*std::move(warning));
  }
  if (auto warning = TiedHeadWarning(checkpoint, graph)) {
    plan.warnings.push_back(*std::move(warning));
  }
  return plan;
}

}  // namespace octavo
