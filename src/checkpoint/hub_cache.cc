// Where huggingface_hub keeps what it downloaded: <cache>/models--org--name/{refs,snapshots,blobs}.
#include <fmt/format.h>
#include <octavo/error.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "base/file.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/printable.h"

namespace octavo {
namespace {

namespace fs = std::filesystem;

const char* Environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : nullptr;
}

std::string ExpandHome(const std::string& path) {
  if (path != "~" && !path.starts_with("~/")) return path;
  const char* home = Environment("HOME");
  return home ? home + path.substr(1) : path;
}

struct CacheRoot {
  std::string path;
  std::string origin;  // what decided it, for messages
};

CacheRoot HubCache() {
  for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"}) {
    if (const char* value = Environment(name)) return {ExpandHome(value), name};
  }
  if (const char* home = Environment("HF_HOME")) return {ExpandHome(home) + "/hub", "HF_HOME"};
  if (const char* xdg = Environment("XDG_CACHE_HOME")) {
    return {ExpandHome(xdg) + "/huggingface/hub", "XDG_CACHE_HOME"};
  }
  return {ExpandHome("~/.cache/huggingface/hub"), "the default"};
}

// "name" or "org/name" as the Hub allows them.
bool IsRepositoryName(const std::string& model) {
  const auto is_part = [](std::string_view part) {
    return !part.empty() && !part.starts_with('.') && !part.starts_with('-') &&
           part.find("..") == std::string_view::npos && part.find("--") == std::string_view::npos &&
           std::all_of(part.begin(), part.end(), [](unsigned char c) {
             return std::isalnum(c) || c == '-' || c == '_' || c == '.';
           });
  };
  const size_t slash = model.find('/');
  if (slash == std::string::npos) return is_part(model);
  return is_part(std::string_view(model).substr(0, slash)) &&
         is_part(std::string_view(model).substr(slash + 1));
}

// A branch, tag or commit; branches may hold slashes but must not leave the folder.
bool IsRevision(const std::string& revision) {
  const fs::path path(revision);
  return !revision.empty() && path.is_relative() &&
         revision.find_first_of(std::string_view("\\\0", 2)) == std::string::npos &&
         std::none_of(path.begin(), path.end(),
                      [](const fs::path& part) { return part == ".." || part == "."; });
}

bool IsDirectory(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

// The snapshots and branches there are, for the message about one that is not.
std::string ListRevisions(const fs::path& repository) {
  std::string text;
  std::error_code error;
  for (const char* folder : {"refs", "snapshots"}) {
    for (fs::directory_iterator entry(repository / folder, error), end; !error && entry != end;
         entry.increment(error)) {
      text += fmt::format("{}{}", text.empty() ? "" : ", ",
                          Printable(entry->path().filename().string()));
    }
  }
  return text.empty() ? "none" : text;
}

std::string FindSnapshot(const fs::path& repository, const std::string& model,
                         const std::string& revision) {
  std::string commit = revision;
  const fs::path reference = repository / "refs" / revision;
  std::error_code ignored;
  if (fs::is_regular_file(reference, ignored)) {
    commit = ReadTextFile(reference.string(), 4096);
    commit.erase(commit.find_last_not_of(" \t\r\n") + 1);
  }
  const bool plain = !commit.empty() && commit != ".." && commit != "." &&
                     commit.find('/') == std::string::npos &&
                     commit.find('\0') == std::string::npos;
  const fs::path snapshot = repository / "snapshots" / (plain ? commit : "");
  if (plain && IsDirectory(snapshot)) return snapshot.string();
  throw Error(
      ErrorCode::kNotFound,
      fmt::format(
          "{}: revision \"{}\" is not in the Hugging Face cache: expected the folder {}/{}, "
          "found these revisions: {}",
          model, Printable(revision), (repository / "snapshots").string(), Printable(commit),
          ListRevisions(repository)));
}

}  // namespace

std::string ResolveModelDirectory(const std::string& model, const std::string& revision) {
  if (model.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                "model: expected a directory or org/name, found nothing");
  }
  if (IsDirectory(model)) return model;
  if (FileExists(model)) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("{}: expected a model directory (config.json and .safetensors files), found a "
                    "file",
                    Printable(model)));
  }
  if (!IsRepositoryName(model)) {
    throw Error(
        ErrorCode::kNotFound,
        fmt::format("{}: no such directory: expected a model directory, or org/name of a model in "
                    "the Hugging Face cache",
                    Printable(model)));
  }
  if (!IsRevision(revision)) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("revision: expected a branch, tag or commit, found \"{}\"",
                            Printable(revision)));
  }
  std::string folder = "models--" + model;
  if (const size_t slash = folder.find('/'); slash != std::string::npos)
    folder.replace(slash, 1, "--");
  const CacheRoot cache = HubCache();
  const fs::path repository = fs::path(cache.path) / folder;
  if (!IsDirectory(repository)) {
    throw Error(
        ErrorCode::kNotFound,
        fmt::format("{}: no such directory, and not in the Hugging Face cache: looked for {} ({})",
                    model, repository.string(), cache.origin));
  }
  return FindSnapshot(repository, model, revision);
}

}  // namespace octavo
