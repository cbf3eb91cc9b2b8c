// A JSON configuration file of a model directory, read by key. Errors name the file and the field,
// what was expected and what was found.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace octavo {

class HfConfig {
 public:
  HfConfig() = default;
  // Throws kNotFound or kDataLoss (not JSON, with the position; not an object; a key given
  // twice).
  static HfConfig FromFile(const std::string& path);
  static HfConfig FromText(std::string_view json, const std::string& path);

  const std::string& path() const { return path_; }
  // Present and not null.
  bool Has(std::string_view key) const;
  // Given as null, which for some fields means something else than leaving them out.
  bool IsNull(std::string_view key) const;
  // Throws kInvalidArgument: "<path>: <field>: <problem>", for values that have the right type but
  // make no sense.
  [[noreturn]] void Refuse(std::string_view key, const std::string& problem) const;

  // Required fields: kInvalidArgument when missing, null or of another type.
  int64_t Int(std::string_view key) const;
  double Float(std::string_view key) const;
  std::string String(std::string_view key) const;
  // Optional ones: the default when missing or null; another type is an error all the same.
  int64_t Int(std::string_view key, int64_t fallback) const;
  double Float(std::string_view key, double fallback) const;
  bool Bool(std::string_view key, bool fallback) const;
  std::string String(std::string_view key, std::string_view fallback) const;
  // An integer or a list of integers (eos_token_id); empty when missing or null.
  std::vector<int64_t> IntList(std::string_view key) const;
  std::vector<double> FloatList(std::string_view key) const;
  std::vector<std::string> StringList(std::string_view key) const;
  // An object whose values are strings (weight_map), by key; empty when missing or null.
  std::map<std::string, std::string> StringMap(std::string_view key) const;
  // A nested object; nullopt when missing or null. Its errors name the whole path
  // ("rope_scaling.factor").
  std::optional<HfConfig> Object(std::string_view key) const;

  // Positive integer within [1, limit], for sizes: guards every product that follows.
  int64_t Size(std::string_view key, int64_t limit = int64_t{1} << 31) const;
  int64_t Size(std::string_view key, int64_t fallback, int64_t limit) const;

 private:
  struct Document;
  std::shared_ptr<const Document> document_;
  const void* node_ = nullptr;  // the JSON object within document_
  std::string path_;
  std::string prefix_;  // "" or "rope_scaling."
};

}  // namespace octavo
