// The user's list of modules that stay as they are (--skip-modules): exact names, or patterns on
// checkpoint tensor names.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace octavo {

// An entry is one of
//   a tensor name   model.layers.0.mlp.down_proj.weight
//   a module name   model.layers.0.mlp.down_proj   (its .weight and .bias)
//   re:PATTERN      matched as Python's re.match does: from the start of the tensor name, not to
//   its end
// Patterns are ECMAScript regular expressions, which agree with Python's in what both have. They
// are matched in time linear in the name; back references, patterns of more than 256 characters and
// counts whose product passes 64 are refused, so that no pattern can hang or overflow the stack.
class ModuleFilter {
 public:
  // Throws kInvalidArgument naming an entry that is empty or a bad pattern, and what is wrong with
  // it.
  explicit ModuleFilter(const std::vector<std::string>& entries);
  ~ModuleFilter();
  ModuleFilter(ModuleFilter&&) noexcept;
  ModuleFilter& operator=(ModuleFilter&&) noexcept;

  // The first entry that matches `tensor_name`, as the user wrote it; null when none does. Every
  // entry that matches is remembered as used.
  const std::string* Match(std::string_view tensor_name);

  // The entries that no tensor name has matched so far.
  std::vector<std::string> Unused() const;

 private:
  struct Entry;
  std::vector<Entry> entries_;
};

}  // namespace octavo
