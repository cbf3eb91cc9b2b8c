#include "checkpoint/checkpoint.h"

#include <gtest/gtest.h>
#include <octavo/log.h>

#include <filesystem>
#include <ostream>
#include <string>
#include <vector>

#include "expect_error.h"
#include "hf_cache_fixture.h"
#include "safetensors_bytes.h"
#include "test_support.h"

namespace octavo {
namespace {

namespace fs = std::filesystem;
using testing::ExpectError;
using testing::FixturePath;
using testing::ScopedEnvironment;
using testing::TempDir;
using testing::WriteFile;

constexpr const char* kTensor = "model.layers.0.self_attn.q_proj.weight";

std::string OneTensor(const std::string& name) {
  return testing::SafetensorsBytes(
      "{\"" + name + R"(":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1);
}

std::vector<std::byte> Data(const CheckpointTensor& tensor) {
  std::vector<std::byte> data(tensor.entry->bytes);
  tensor.file->file().ReadAt(tensor.entry->offset, data);
  return data;
}

void ExpectHoldsPlain(const Checkpoint& checkpoint) {
  const Checkpoint plain = Checkpoint::Open(FixturePath("storage/plain"));
  EXPECT_EQ(checkpoint.tensors().size(), plain.tensors().size());
  EXPECT_EQ(checkpoint.total_bytes(), 164480u);
  for (const CheckpointTensor& expected : plain.tensors()) {
    SCOPED_TRACE(expected.entry->name);
    const CheckpointTensor* found = checkpoint.Find(expected.entry->name);
    ASSERT_NE(found, nullptr);
    EXPECT_EQ(found->entry->shape, expected.entry->shape);
    EXPECT_EQ(Data(*found), Data(expected));
  }
}

TEST(Checkpoint, OpensOneFile) {
  const Checkpoint plain = Checkpoint::Open(FixturePath("storage/plain"));
  EXPECT_EQ(plain.tensors().size(), 21u);
  EXPECT_EQ(plain.config().Int("hidden_size"), 64);
  EXPECT_EQ(plain.Find("nothing"), nullptr);
}

TEST(Checkpoint, OpensShards) {
  const Checkpoint sharded = Checkpoint::Open(FixturePath("storage/sharded"));
  ExpectHoldsPlain(sharded);
  for (size_t i = 1; i < sharded.tensors().size(); ++i) {
    const CheckpointTensor& a = sharded.tensors()[i - 1];
    const CheckpointTensor& b = sharded.tensors()[i];
    EXPECT_TRUE(a.file->path() < b.file->path() || a.entry->offset < b.entry->offset);
  }
}

TEST(Checkpoint, PrefersModelSafetensors) {
  ExpectHoldsPlain(Checkpoint::Open(FixturePath("storage/prefer_safetensors")));
}

TEST(Checkpoint, OpensASnapshotOfSymbolicLinks) {
  TempDir folder;
  testing::CopyHfCache(folder / "cache");
  ExpectHoldsPlain(Checkpoint::Open(folder / "cache/" + testing::kHfCacheSnapshot));
}

TEST(Checkpoint, OpensTheOnlyFileWhateverItsName) {
  TempDir folder;
  WriteFile(folder / "config.json", "{}");
  WriteFile(folder / "weights.safetensors", OneTensor("a"));
  EXPECT_EQ(Checkpoint::Open(folder.path()).tensors().size(), 1u);
  WriteFile(folder / "adapter.safetensors", OneTensor("b"));
  ExpectError(ErrorCode::kNotFound, {folder.path(), "2 .safetensors files", "adapter.safetensors"},
              [&] { Checkpoint::Open(folder.path()); });
}

struct Bad {
  std::string folder;
  ErrorCode code;
  std::vector<std::string> says;
  friend void PrintTo(const Bad& bad, std::ostream* stream) { *stream << bad.folder; }
};

class BadFolder : public ::testing::TestWithParam<Bad> {};

TEST_P(BadFolder, IsRefused) {
  const std::string path = FixturePath("storage/" + GetParam().folder);
  std::vector<std::string> says = GetParam().says;
  says.push_back(path);
  ExpectError(GetParam().code, says, [&] { Checkpoint::Open(path); });
}

INSTANTIATE_TEST_SUITE_P(
    Storage, BadFolder,
    ::testing::Values(
        Bad{"bin_only",
            ErrorCode::kNotFound,
            {"no .safetensors file, only pytorch_model.bin", "Octavo reads safetensors"}},
        Bad{"no_config", ErrorCode::kNotFound, {"config.json not found"}},
        Bad{"index_missing_shard",
            ErrorCode::kNotFound,
            {"lists 4 shards, 1 of them missing", "model-00002-of-00004.safetensors"}},
        Bad{"index_path_traversal",
            ErrorCode::kDataLoss,
            {kTensor, "expected the plain name of a file", "\"../plain/model.safetensors\""}},
        Bad{"index_wrong_map",
            ErrorCode::kDataLoss,
            {kTensor, "expected in model-00002-of-00004.safetensors",
             "found in model-00001-of-00004.safetensors"}},
        Bad{"truncated", ErrorCode::kDataLoss, {"model.safetensors", "lies past the end"}}),
    [](const auto& test) { return test.param.folder; });

TEST(Checkpoint, SaysWhatIsMissing) {
  TempDir folder;
  ExpectError(ErrorCode::kNotFound, {"nothing", "expected a model directory, found nothing"},
              [&] { Checkpoint::Open(folder / "nothing"); });
  WriteFile(folder / "config.json", "{}");
  ExpectError(ErrorCode::kNotFound, {folder.path(), "no weights", "model.safetensors.index.json"},
              [&] { Checkpoint::Open(folder.path()); });
  WriteFile(folder / "model-q4.gguf", "GGUF");
  ExpectError(ErrorCode::kNotFound, {"no .safetensors file, only model-q4.gguf"},
              [&] { Checkpoint::Open(folder.path()); });
  fs::create_symlink("../blobs/gone", folder / "model.safetensors");
  ExpectError(ErrorCode::kNotFound, {"model.safetensors", "symbolic link", "../blobs/gone"},
              [&] { Checkpoint::Open(folder.path()); });
  fs::remove(folder / "config.json");
  fs::create_symlink("../blobs/gone-too", folder / "config.json");
  ExpectError(ErrorCode::kNotFound, {"config.json", "symbolic link", "../blobs/gone-too"},
              [&] { Checkpoint::Open(folder.path()); });
}

TEST(Checkpoint, NamesMissingShardsBeforeReadingAny) {
  TempDir folder;
  WriteFile(folder / "config.json", "{}");
  WriteFile(folder / "a.safetensors", "damaged");
  WriteFile(folder / "model.safetensors", OneTensor("x"));
  fs::create_symlink("../blobs/gone", folder / "b.safetensors");
  WriteFile(folder / "model.safetensors.index.json",
            R"({"weight_map":{"x":"a.safetensors","y":"b.safetensors","z":"c.safetensors"}})");
  ExpectError(ErrorCode::kNotFound,
              {"3 shards, 2 of them missing",
               "b.safetensors (a symbolic link to a file that does not exist), c.safetensors",
               "model.safetensors is there: remove the index"},
              [&] { Checkpoint::Open(folder.path()); });
}

TEST(Checkpoint, ChecksTheIndex) {
  TempDir folder;
  const std::string index = folder / "model.safetensors.index.json";
  WriteFile(folder / "config.json", "{}");
  WriteFile(folder / "a.safetensors", OneTensor("x"));
  WriteFile(folder / "b.safetensors", OneTensor("x"));
  const auto refuses = [&](ErrorCode code, const std::string& text, std::vector<std::string> says) {
    SCOPED_TRACE(text);
    WriteFile(index, text);
    ExpectError(code, says, [&] { Checkpoint::Open(folder.path()); });
  };
  refuses(ErrorCode::kDataLoss, "{", {index, "not valid JSON: parse error at line 1, column 2"});
  refuses(ErrorCode::kDataLoss, "[]", {index, "expected a JSON object"});
  refuses(ErrorCode::kDataLoss, "{}", {index, "weight_map", "found none"});
  refuses(ErrorCode::kDataLoss, R"({"weight_map":{}})", {index, "weight_map", "found it empty"});
  refuses(ErrorCode::kInvalidArgument, R"({"weight_map":[]})", {index, "weight_map"});
  refuses(ErrorCode::kInvalidArgument, R"({"weight_map":{"x":1}})",
          {index, "weight_map.x", "found 1"});
  refuses(ErrorCode::kDataLoss, R"({"weight_map":{"x":"a.safetensors","x":"b.safetensors"}})",
          {index, "key \"x\" given twice"});
  for (const char* name : {"", ".", "..", "/etc/passwd", "a/b", "..\\\\b", "a\\u0000b"}) {
    refuses(ErrorCode::kDataLoss, std::string(R"({"weight_map":{"x":")") + name + "\"}}",
            {index, "tensor x", "expected the plain name"});
  }
  refuses(ErrorCode::kDataLoss, R"({"weight_map":{"y":"a.safetensors"}})",
          {"tensor y", "expected in a.safetensors, found in none of the shards"});
}

TEST(Checkpoint, ATensorInTwoShardsIsTakenFromTheOneThatTheIndexNames) {
  TempDir folder;
  WriteFile(folder / "config.json", "{}");
  WriteFile(folder / "a.safetensors", OneTensor("x"));
  WriteFile(folder / "b.safetensors",
            testing::SafetensorsBytes(R"({"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                                      R"("y":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                                      2));
  WriteFile(folder / "model.safetensors.index.json",
            R"({"weight_map":{"x":"a.safetensors","y":"b.safetensors"}})");
  std::vector<std::string> warnings;
  SetLogSink([&](LogLevel, std::string_view message) { warnings.emplace_back(message); });
  const Checkpoint checkpoint = Checkpoint::Open(folder.path());
  SetLogSink({});
  ASSERT_NE(checkpoint.Find("x"), nullptr);
  EXPECT_EQ(checkpoint.Find("x")->file->path(), folder / "a.safetensors");
  EXPECT_EQ(checkpoint.tensors().size(), 2u);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("tensor x"), std::string::npos);
}

TEST(ResolveModelDirectory, TakesADirectoryAsItIs) {
  EXPECT_EQ(ResolveModelDirectory(FixturePath("storage/plain")), FixturePath("storage/plain"));
}

TEST(ResolveModelDirectory, FindsARepositoryInTheCache) {
  TempDir folder;
  const std::string root = folder / "cache";
  testing::CopyHfCache(root);
  {
    ScopedEnvironment cache("HF_HUB_CACHE", root.c_str());
    const std::string found = ResolveModelDirectory("acme/tiny-llama");
    EXPECT_EQ(found, root + "/" + testing::kHfCacheSnapshot);
    ExpectHoldsPlain(Checkpoint::Open(found));
    EXPECT_EQ(ResolveModelDirectory("acme/tiny-llama", "81612dc9d8934f4569aab169c6a7be58b83aa7d5"),
              found);
    ExpectError(
        ErrorCode::kNotFound,
        {"acme/tiny-llama", "revision \"v2\"", "main", "81612dc9d8934f4569aab169c6a7be58b83aa7d5"},
        [] { ResolveModelDirectory("acme/tiny-llama", "v2"); });
    ExpectError(ErrorCode::kNotFound, {root + "/models--acme--other", "HF_HUB_CACHE"},
                [] { ResolveModelDirectory("acme/other"); });
    for (const char* revision : {"../main", "..", "", "/etc", "a/../../b"}) {
      ExpectError(ErrorCode::kInvalidArgument, {"revision"},
                  [&] { ResolveModelDirectory("acme/tiny-llama", revision); });
    }
  }
  TempDir home;
  fs::create_directory_symlink(root, home / "hub");
  fs::create_directories(home / ".cache/huggingface");
  fs::create_directory_symlink(root, home / ".cache/huggingface/hub");
  fs::create_directories(home / "huggingface");
  fs::create_directory_symlink(root, home / "huggingface/hub");
  ScopedEnvironment no_cache("HF_HUB_CACHE", nullptr),
      no_old_cache("HUGGINGFACE_HUB_CACHE", nullptr);
  ScopedEnvironment user_home("HOME", home.path().c_str());
  {
    ScopedEnvironment hf_home("HF_HOME", home.path().c_str());
    EXPECT_EQ(ResolveModelDirectory("acme/tiny-llama"), home / "hub/" + testing::kHfCacheSnapshot);
  }
  ScopedEnvironment no_hf_home("HF_HOME", nullptr);
  {
    ScopedEnvironment xdg("XDG_CACHE_HOME", home.path().c_str());
    EXPECT_EQ(ResolveModelDirectory("acme/tiny-llama"),
              home / "huggingface/hub/" + testing::kHfCacheSnapshot);
  }
  ScopedEnvironment no_xdg("XDG_CACHE_HOME", nullptr);
  EXPECT_EQ(ResolveModelDirectory("acme/tiny-llama"),
            home / ".cache/huggingface/hub/" + testing::kHfCacheSnapshot);
}

TEST(ResolveModelDirectory, SaysWhatItExpected) {
  ExpectError(ErrorCode::kInvalidArgument, {"expected a directory or org/name"},
              [] { ResolveModelDirectory(""); });
  ExpectError(ErrorCode::kInvalidArgument,
              {"config.json", "expected a model directory", "found a file"},
              [] { ResolveModelDirectory(FixturePath("storage/plain/config.json")); });
  for (const char* model : {"/no/such/place", "./x", "../x", "a/b/c", "a..b/c", "a--b/c", "a b"}) {
    ExpectError(ErrorCode::kNotFound, {model, "no such directory", "expected a model directory"},
                [&] { ResolveModelDirectory(model); });
  }
}

TEST(ResolveModelDirectory, DoesNotFollowABadReference) {
  TempDir cache;
  fs::create_directories(cache / "models--org--m/refs/pr");
  fs::create_directories(cache / "models--org--m/snapshots/abc");
  ScopedEnvironment root("HF_HUB_CACHE", cache.path().c_str());
  WriteFile(cache / "models--org--m/refs/pr/1", "abc\n");
  EXPECT_EQ(ResolveModelDirectory("org/m", "pr/1"), cache / "models--org--m/snapshots/abc");
  for (const char* content : {"", "..", "../..", "missing"}) {
    WriteFile(cache / "models--org--m/refs/main", content);
    ExpectError(ErrorCode::kNotFound, {"org/m", "revision \"main\"", "snapshots"},
                [] { ResolveModelDirectory("org/m"); });
  }
}

}  // namespace
}  // namespace octavo
