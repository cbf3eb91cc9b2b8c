// What unit tests share: the fixtures and temporary folders.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>

namespace octavo::testing {

// A path under the fixtures, for example FixturePath("storage/plain"). They lie in the folder that
// the environment variable OCTAVO_SHARED names, else in `shared` beside the source tree.
inline std::string FixturePath(std::string_view relative) {
  const char* shared = getenv("OCTAVO_SHARED");
  const std::filesystem::path root = shared
                                         ? std::filesystem::path(shared)
                                         : std::filesystem::path(OCTAVO_SOURCE_DIR) / "../shared";
  return (root.lexically_normal() / "fixtures" / relative).string();
}

// A folder that is removed with everything in it when this object goes.
class TempDir {
 public:
  TempDir() {
    std::string pattern = (std::filesystem::temp_directory_path() / "octavo_test_XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
    path_ = pattern;
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  std::string path() const { return path_.string(); }
  std::string operator/(std::string_view relative) const { return (path_ / relative).string(); }

 private:
  std::filesystem::path path_;
};

inline void WriteFile(const std::string& path, std::string_view content) {
  std::ofstream stream(path, std::ios::binary);
  stream.write(content.data(), static_cast<std::streamsize>(content.size()));
  stream.close();
  if (!stream) throw std::runtime_error("cannot write " + path);
}

inline std::string ReadWholeFile(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) throw std::runtime_error("cannot read " + path);
  std::ostringstream content;
  content << stream.rdbuf();
  return content.str();
}

// Sets an environment variable (or removes it, value null) until this object goes.
class ScopedEnvironment {
 public:
  ScopedEnvironment(const char* name, const char* value) : name_(name) {
    if (const char* before = getenv(name)) before_ = before, was_set_ = true;
    Set(value);
  }
  ~ScopedEnvironment() { Set(was_set_ ? before_.c_str() : nullptr); }
  ScopedEnvironment(const ScopedEnvironment&) = delete;
  ScopedEnvironment& operator=(const ScopedEnvironment&) = delete;

 private:
  void Set(const char* value) {
    if (value) {
      setenv(name_, value, 1);
    } else {
      unsetenv(name_);
    }
  }
  const char* name_;
  std::string before_;
  bool was_set_ = false;
};

}  // namespace octavo::testing
