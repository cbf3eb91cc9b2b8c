#include "checkpoint/hf_config.h"

#include <fmt/format.h>
#include <octavo/error.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <unordered_set>
#include <utility>

#include "base/file.h"
#include "checkpoint/printable.h"

namespace octavo {

using Json = nlohmann::json;

struct HfConfig::Document {
  Json root;
};

namespace {

constexpr uint64_t kMaxFileBytes = 64u << 20;
constexpr int kMaxDepth = 120;  // of nested lists and objects: deeper ones would end in recursion

std::string Describe(const Json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array() && value.size() > 8) return fmt::format("a list of {}", value.size());
  return Printable(value.dump(-1, ' ', false, Json::error_handler_t::replace), 60);
}

[[noreturn]] void ThrowDamaged(const std::string& path, const std::string& message) {
  throw Error(ErrorCode::kDataLoss, fmt::format("{}: {}", path, message));
}

Json Parse(std::string_view text, const std::string& path) {
  // Keys of the objects that are open: the parser itself would keep the last of two without a word.
  std::vector<std::unordered_set<std::string>> keys;
  const Json::parser_callback_t reject_duplicates = [&](int depth, Json::parse_event_t event,
                                                        Json& parsed) {
    if (depth > kMaxDepth) {
      ThrowDamaged(path, fmt::format("nested more than {} levels deep", kMaxDepth));
    }
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key &&
        !keys.back().insert(parsed.get<std::string>()).second) {
      ThrowDamaged(path,
                   fmt::format("key \"{}\" given twice", Printable(parsed.get<std::string>())));
    }
    return true;
  };
  if (const size_t zero = text.find('\0'); zero != std::string_view::npos) {
    // The parser would take it for the end of its input.
    ThrowDamaged(path, fmt::format("not valid JSON: zero byte at byte {}", zero + 1));
  }
  try {
    return Json::parse(text, reject_duplicates);
  } catch (const Json::exception& error) {
    ThrowDamaged(path, fmt::format("not valid JSON: {}", PrintableJsonError(error.what())));
  }
}

// The fields of one object, with errors that name them.
class Fields {
 public:
  Fields(const void* node, const std::string& path, const std::string& prefix)
      : node_(static_cast<const Json*>(node)), path_(path), prefix_(prefix) {}

  // Null when missing or null.
  const Json* Find(std::string_view key) const {
    if (node_ == nullptr) return nullptr;
    const auto found = node_->find(key);
    return found == node_->end() || found->is_null() ? nullptr : &*found;
  }
  const Json& Require(std::string_view key, const char* expected) const {
    const Json* value = Find(key);
    if (value == nullptr) Fail(key, fmt::format("expected {}, found nothing", expected));
    return *value;
  }
  [[noreturn]] void Fail(std::string_view key, const std::string& message) const {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{}: {}{}: {}", path_, prefix_, key, message));
  }
  [[noreturn]] void FailType(std::string_view key, const char* expected, const Json& found) const {
    Fail(key, fmt::format("expected {}, found {}", expected, Describe(found)));
  }

  int64_t AsInt(std::string_view key, const Json& value,
                const char* expected = "an integer") const {
    if (!value.is_number_integer()) FailType(key, expected, value);
    if (value.is_number_unsigned() &&
        value.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      FailType(key, "an integer of 64 bits", value);
    }
    return value.get<int64_t>();
  }
  double AsFloat(std::string_view key, const Json& value, const char* expected = "a number") const {
    if (!value.is_number()) FailType(key, expected, value);
    return value.get<double>();
  }
  std::string AsString(std::string_view key, const Json& value,
                       const char* expected = "a string") const {
    if (!value.is_string()) FailType(key, expected, value);
    return value.get<std::string>();
  }
  // Calls `take` with each element of a list; not at all when it is missing or null.
  template <typename Take>
  void ForEach(std::string_view key, const char* expected, Take&& take) const {
    const Json* value = Find(key);
    if (value == nullptr) return;
    if (!value->is_array()) FailType(key, expected, *value);
    for (const Json& element : *value) take(element);
  }

 private:
  const Json* node_;
  const std::string& path_;
  const std::string& prefix_;
};

}  // namespace

HfConfig HfConfig::FromFile(const std::string& path) {
  return FromText(ReadTextFile(path, kMaxFileBytes), path);
}

HfConfig HfConfig::FromText(std::string_view json, const std::string& path) {
  auto document = std::make_shared<Document>();
  document->root = Parse(json, path);
  if (!document->root.is_object()) {
    ThrowDamaged(path, fmt::format("expected a JSON object, found {}", Describe(document->root)));
  }
  HfConfig config;
  config.node_ = &document->root;
  config.document_ = std::move(document);
  config.path_ = path;
  return config;
}

bool HfConfig::Has(std::string_view key) const {
  return Fields(node_, path_, prefix_).Find(key) != nullptr;
}

bool HfConfig::IsNull(std::string_view key) const {
  if (node_ == nullptr) return false;
  const Json& object = *static_cast<const Json*>(node_);
  const auto found = object.find(key);
  return found != object.end() && found->is_null();
}

void HfConfig::Refuse(std::string_view key, const std::string& problem) const {
  Fields(node_, path_, prefix_).Fail(key, problem);
}

int64_t HfConfig::Int(std::string_view key) const {
  const Fields fields(node_, path_, prefix_);
  return fields.AsInt(key, fields.Require(key, "an integer"));
}

double HfConfig::Float(std::string_view key) const {
  const Fields fields(node_, path_, prefix_);
  return fields.AsFloat(key, fields.Require(key, "a number"));
}

std::string HfConfig::String(std::string_view key) const {
  const Fields fields(node_, path_, prefix_);
  return fields.AsString(key, fields.Require(key, "a string"));
}

int64_t HfConfig::Int(std::string_view key, int64_t fallback) const {
  const Fields fields(node_, path_, prefix_);
  const Json* value = fields.Find(key);
  return value ? fields.AsInt(key, *value) : fallback;
}

double HfConfig::Float(std::string_view key, double fallback) const {
  const Fields fields(node_, path_, prefix_);
  const Json* value = fields.Find(key);
  return value ? fields.AsFloat(key, *value) : fallback;
}

bool HfConfig::Bool(std::string_view key, bool fallback) const {
  const Fields fields(node_, path_, prefix_);
  const Json* value = fields.Find(key);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) fields.FailType(key, "true or false", *value);
  return value->get<bool>();
}

std::string HfConfig::String(std::string_view key, std::string_view fallback) const {
  const Fields fields(node_, path_, prefix_);
  const Json* value = fields.Find(key);
  return value ? fields.AsString(key, *value) : std::string(fallback);
}

std::vector<int64_t> HfConfig::IntList(std::string_view key) const {
  constexpr const char* kExpected = "an integer or a list of integers";
  const Fields fields(node_, path_, prefix_);
  const Json* single = fields.Find(key);
  if (single != nullptr && !single->is_array()) return {fields.AsInt(key, *single, kExpected)};
  std::vector<int64_t> list;
  fields.ForEach(key, kExpected,
                 [&](const Json& value) { list.push_back(fields.AsInt(key, value, kExpected)); });
  return list;
}

std::vector<double> HfConfig::FloatList(std::string_view key) const {
  constexpr const char* kExpected = "a list of numbers";
  const Fields fields(node_, path_, prefix_);
  std::vector<double> list;
  fields.ForEach(key, kExpected,
                 [&](const Json& value) { list.push_back(fields.AsFloat(key, value, kExpected)); });
  return list;
}

std::vector<std::string> HfConfig::StringList(std::string_view key) const {
  constexpr const char* kExpected = "a list of strings";
  const Fields fields(node_, path_, prefix_);
  std::vector<std::string> list;
  fields.ForEach(key, kExpected, [&](const Json& value) {
    list.push_back(fields.AsString(key, value, kExpected));
  });
  return list;
}

std::map<std::string, std::string> HfConfig::StringMap(std::string_view key) const {
  constexpr const char* kExpected = "an object of strings";
  const Fields fields(node_, path_, prefix_);
  std::map<std::string, std::string> map;
  const Json* object = fields.Find(key);
  if (object == nullptr) return map;
  if (!object->is_object()) fields.FailType(key, kExpected, *object);
  for (const auto& [name, value] : object->items()) {
    if (!value.is_string()) {
      fields.FailType(fmt::format("{}.{}", key, Printable(name)), "a string", value);
    }
    map.emplace(name, value.get<std::string>());
  }
  return map;
}

std::optional<HfConfig> HfConfig::Object(std::string_view key) const {
  const Fields fields(node_, path_, prefix_);
  const Json* value = fields.Find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_object()) fields.FailType(key, "an object", *value);
  HfConfig object;
  object.document_ = document_;
  object.node_ = value;
  object.path_ = path_;
  object.prefix_ = fmt::format("{}{}.", prefix_, key);
  return object;
}

int64_t HfConfig::Size(std::string_view key, int64_t limit) const {
  const Fields fields(node_, path_, prefix_);
  const int64_t value = fields.AsInt(key, fields.Require(key, "an integer"));
  if (value < 1 || value > limit) {
    fields.Fail(key, fmt::format("expected an integer from 1 to {}, found {}", limit, value));
  }
  return value;
}

int64_t HfConfig::Size(std::string_view key, int64_t fallback, int64_t limit) const {
  return Has(key) ? Size(key, limit) : fallback;
}

}  // namespace octavo
