#include "checkpoint/safetensors_file.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "expect_error.h"
#include "safetensors_bytes.h"
#include "test_support.h"

namespace octavo {
namespace {

using testing::ExpectError;
using testing::SafetensorsBytes;

class SafetensorsFileTest : public ::testing::Test {
 protected:
  SafetensorsFile Open(const std::string& bytes) {
    testing::WriteFile(path_, bytes);
    return SafetensorsFile(path_);
  }
  void ExpectRefused(const std::string& header, size_t data_bytes, std::vector<std::string> says) {
    SCOPED_TRACE(header.substr(0, 200));
    says.push_back(path_);
    ExpectError(ErrorCode::kDataLoss, says, [&] { Open(SafetensorsBytes(header, data_bytes)); });
  }

  testing::TempDir folder_;
  std::string path_ = folder_ / "file.safetensors";
};

TEST_F(SafetensorsFileTest, AcceptsScalarsEmptyTensorsAndNoTensors) {
  const SafetensorsFile file = Open(SafetensorsBytes(
      R"({"scalar":{"dtype":"F32","shape":[],"data_offsets":[0,4]},
          "empty":{"dtype":"F64","shape":[0,4611686018427387904,8],"data_offsets":[4,4]},
          "row":{"dtype":"U8","shape":[3],"data_offsets":[4,7]}})",
      7));
  ASSERT_EQ(file.tensors().size(), 3u);
  EXPECT_EQ(file.tensors()[0].name, "scalar");
  EXPECT_EQ(file.tensors()[0].shape, Shape{});
  EXPECT_EQ(file.tensors()[1].name, "empty");
  EXPECT_EQ(file.tensors()[1].bytes, 0u);
  EXPECT_EQ(file.tensors()[2].bytes, 3u);
  EXPECT_EQ(file.Find("none"), nullptr);
  EXPECT_TRUE(Open(SafetensorsBytes("{}", 0)).tensors().empty());
}

TEST_F(SafetensorsFileTest, KeepsItsTensorsWhenMoved) {
  SafetensorsFile first =
      Open(SafetensorsBytes(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1));
  const SafetensorsFile second = std::move(first);
  ASSERT_NE(second.Find("a"), nullptr);
  EXPECT_EQ(second.Find("a")->bytes, 1u);
}

TEST_F(SafetensorsFileTest, RefusesHeadersThatAreNotWhatTheFormatSays) {
  const std::string a = R"({"dtype":"U8","shape":[1],"data_offsets":[0,1]})";
  ExpectRefused("", 1, {"header is not a JSON object", "found nothing"});
  ExpectRefused(" {}", 0, {"header is not a JSON object", "found ' '"});
  ExpectRefused("\xef\xbb\xbf{}", 0, {"header is not a JSON object"});
  ExpectRefused("{} x", 0, {"not valid JSON at byte 4"});
  ExpectRefused(std::string("{}\0x", 4), 0, {"zero byte at byte 3"});
  ExpectRefused("{\"a\xff\":" + a + "}", 1, {"not valid JSON at byte 4", "UTF-8"});
  ExpectRefused(R"({"\ud800":)" + a + "}", 1, {"not valid JSON"});
  ExpectRefused(R"({"a":)" + a + R"(,"a":)" + a + "}", 1, {"tensor a", "named twice"});
  ExpectRefused(R"({"a":)" + a + R"(,"\u0061":)" + a + "}", 1, {"tensor a", "named twice"});
  ExpectRefused(R"({"a":3})", 0, {"tensor a", "expected an object, found 3"});
  ExpectRefused(R"({"a":[{}]})", 0, {"tensor a", "expected an object, found an array"});
  ExpectRefused(R"({"a":{"dtype":"U8","dtype":"U8"}})", 0, {"tensor a", "\"dtype\" given twice"});
  ExpectRefused(R"({"a":{"dtype":"U8","data_offsets":[0,1]}})", 1, {"tensor a", "has no shape"});
  ExpectRefused(R"({"a":{"shape":[1],"data_offsets":[0,1]}})", 1, {"tensor a", "has no dtype"});
  ExpectRefused(R"({"a":{"dtype":"U8","shape":[1]}})", 1, {"tensor a", "has no data_offsets"});
  ExpectRefused(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":{}}})", 1,
                {"tensor a", "unknown key \"x\""});
  ExpectRefused(R"({"a":{"dtype":7}})", 1, {"tensor a", "dtype: expected a string, found 7"});
  ExpectRefused(R"({"a":{"shape":"U8"}})", 1,
                {"tensor a", "shape: expected an array, found \"U8\""});
  ExpectRefused(R"({"a":{"shape":{}}})", 1,
                {"tensor a", "shape: expected an array, found an object"});
  ExpectRefused(R"({"a":{"shape":[[1]]}})", 1, {"tensor a", "shape: expected unsigned integers"});
  ExpectRefused(R"({"a":{"shape":[1.0]}})", 1, {"tensor a", "found 1.0"});
  ExpectRefused(R"({"a":{"shape":[1e3]}})", 1, {"tensor a", "found 1e3"});
  ExpectRefused(R"({"a":{"shape":[null]}})", 1, {"tensor a", "found null"});
  ExpectRefused(R"({"a":{"shape":[18446744073709551615]}})", 1,
                {"tensor a", "dimension 18446744073709551615 overflows"});
  ExpectRefused(R"({"a":{"shape":[184467440737095516150]}})", 1,
                {"tensor a", "found 184467440737095516150"});
  ExpectRefused(R"({"a":{"data_offsets":[-1,1]}})", 1, {"tensor a", "negative offset -1"});
  ExpectRefused(R"({"a":{"data_offsets":[1]}})", 1, {"tensor a", "expected 2 numbers, found 1"});
  ExpectRefused(R"({"a":{"data_offsets":[0,1,2]}})", 1, {"tensor a", "expected 2 numbers"});
  ExpectRefused(R"({"__metadata__":{"format":1}})", 0,
                {"__metadata__: \"format\": expected a string, found 1"});
  ExpectRefused(R"({"__metadata__":[]})", 0, {"__metadata__", "expected an object"});
  ExpectRefused(R"({"__metadata__":{"a":"b","a":"b"}})", 0, {"\"a\" given twice"});
}

TEST_F(SafetensorsFileTest, RefusesHostileNumbers) {
  ExpectRefused(R"({"a":{"dtype":"F64","shape":[4611686018427387904],"data_offsets":[0,0]}})", 0,
                {"tensor a", "overflows 64 bits"});
  ExpectRefused(
      R"({"a":{"dtype":"U8","shape":[18446744073709551615],"data_offsets":[0,18446744073709551615]}})",
      0, {"tensor a", "overflows"});
  ExpectRefused(R"({"a":{"dtype":"U8","shape":[9223372036854775807],)"
                R"("data_offsets":[9223372036854775808,18446744073709551615]}})",
                0, {"tensor a", "lies past the end", "and more"});
  std::string ones = "1";
  for (int i = 0; i < 64; ++i) ones += ",1";
  ExpectRefused(R"({"a":{"dtype":"U8","shape":[)" + ones + R"(],"data_offsets":[0,1]}})", 1,
                {"tensor a", "more than 64 dimensions"});
  ExpectRefused("{\"a\":" + std::string(1'000'000, '['), 0, {"tensor a", "found an array"});
  ExpectError(ErrorCode::kDataLoss, {"header length 18446744073709551615, expected at most"},
              [&] { Open(testing::LittleEndian64(~uint64_t{0}) + "{}"); });
}

TEST_F(SafetensorsFileTest, MessagesStayReadable) {
  const std::string name(100'000, 'n');
  try {
    Open(SafetensorsBytes(R"({"\u001b[2J)" + name + R"(":1})", 0));
    FAIL();
  } catch (const Error& error) {
    EXPECT_LT(std::strlen(error.what()), 600u);
    EXPECT_EQ(std::string(error.what()).find('\x1b'), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("\\x1b[2Jnnn"), std::string::npos);
  }
}

TEST_F(SafetensorsFileTest, RecognizesAGitLfsPointer) {
  ExpectError(ErrorCode::kDataLoss, {path_, "Git LFS pointer", "git lfs pull"}, [&] {
    Open("version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 123\n");
  });
}

TEST_F(SafetensorsFileTest, MissingFileAndDirectory) {
  ExpectError(ErrorCode::kNotFound, {"nothing.safetensors"},
              [&] { SafetensorsFile file(folder_ / "nothing.safetensors"); });
  ExpectError(ErrorCode::kInvalidArgument, {folder_.path()},
              [&] { SafetensorsFile file(folder_.path()); });
}

// Damages a valid file at random for a while: every outcome is a valid file or an Error, and the
// tensors of a file that is taken lie within it.
TEST_F(SafetensorsFileTest, SurvivesRandomDamage) {
  const std::string good =
      testing::ReadWholeFile(testing::FixturePath("storage/odd_order/model.safetensors"));
  const size_t header_end = 8 + 2176;
  std::mt19937 random(7);
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  int taken = 0, refused = 0;
  while (std::chrono::steady_clock::now() < until) {
    std::string bytes = good;
    const uint32_t kind = random() % 4;
    if (kind == 0) bytes.resize(random() % bytes.size());
    if (kind == 1) bytes.erase(random() % header_end, 1 + random() % 16);
    if (kind >= 2) {
      constexpr char kLikely[] = "0123456789[]{},:\"-eE.\\ \xff";
      for (uint32_t i = 0, count = 1 + random() % 4; i < count; ++i) {
        const size_t at = kind == 2 ? 8 + random() % (header_end - 8) : random() % header_end;
        bytes[at] =
            kind == 2 ? kLikely[random() % (sizeof kLikely - 1)] : static_cast<char>(random());
      }
    }
    try {
      const SafetensorsFile file = Open(bytes);
      ++taken;
      for (const TensorEntry& tensor : file.tensors()) {
        ASSERT_LE(tensor.bytes, bytes.size());
        ASSERT_LE(tensor.offset, bytes.size() - tensor.bytes);
      }
    } catch (const Error& error) {
      ++refused;
      ASSERT_EQ(error.code(), ErrorCode::kDataLoss) << error.what();
      ASSERT_NE(std::string(error.what()).find(path_), std::string::npos);
    }
  }
  EXPECT_GT(refused, 100);
  RecordProperty("taken", taken);
}

TEST_F(SafetensorsFileTest, WritesWhatItReads) {
  const std::vector<uint16_t> halves = {1, 2, 3, 4, 5, 6};
  const std::vector<int64_t> longs = {-1, 1};
  const std::vector<float> scalar = {2.5f};
  WriteSafetensors(path_,
                   {{"halves \"\xc3\xa9\"", DType::kBf16, {2, 3}, std::as_bytes(std::span(halves))},
                    {"scalar", DType::kF32, {}, std::as_bytes(std::span(scalar))},
                    {"none", DType::kF32, {0, 5}, {}},
                    {"longs", DType::kS64, {2}, std::as_bytes(std::span(longs))}});
  const SafetensorsFile file(path_);
  ASSERT_EQ(file.tensors().size(), 4u);
  EXPECT_EQ(file.tensors()[0].name, "longs");  // widest first
  const TensorEntry* entry = file.Find("halves \"\xc3\xa9\"");
  ASSERT_NE(entry, nullptr);
  EXPECT_EQ(entry->shape, (Shape{2, 3}));
  EXPECT_EQ(entry->dtype, DType::kBf16);
  std::vector<uint16_t> read(6);
  file.file().ReadAt(entry->offset, std::as_writable_bytes(std::span(read)));
  EXPECT_EQ(read, halves);
  for (const TensorEntry& tensor : file.tensors()) {
    EXPECT_EQ(tensor.offset % static_cast<uint64_t>(ByteSize(tensor.dtype)), 0u) << tensor.name;
  }
}

TEST_F(SafetensorsFileTest, WritingReplacesTheFileOnlyWhenComplete) {
  const std::vector<float> one = {1.0f};
  const TensorToWrite tensor{"a", DType::kF32, {1}, std::as_bytes(std::span(one))};
  testing::WriteFile(path_, "before");
  std::filesystem::create_symlink("file.safetensors", folder_ / "link");
  ExpectError(ErrorCode::kInternal, {"tensor a", "given twice"}, [&] {
    WriteSafetensors(path_, {tensor, tensor});
  });
  ExpectError(ErrorCode::kInternal, {"tensor a", "F32 [2] does not take 4 bytes"}, [&] {
    WriteSafetensors(path_, {{"a", DType::kF32, {2}, tensor.data}});
  });
  ExpectError(ErrorCode::kInvalidArgument, {"name cannot be written"}, [&] {
    WriteSafetensors(path_, {{"\xff", DType::kF32, {1}, tensor.data}});
  });
  EXPECT_EQ(testing::ReadWholeFile(path_), "before");
  WriteSafetensors(folder_ / "link", {tensor});
  EXPECT_TRUE(std::filesystem::is_symlink(folder_ / "link"));
  EXPECT_EQ(SafetensorsFile(path_).tensors().size(), 1u);
  size_t entries = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder_.path()))
    ++entries;
  EXPECT_EQ(entries, 2u);  // no temporary file is left
}

TEST_F(SafetensorsFileTest, UnwritableTargets) {
  ExpectError(ErrorCode::kUnavailable, {"no/such", "cannot be written: No such file or directory"},
              [&] { WriteSafetensors(folder_ / "no/such", {}); });
  ExpectError(ErrorCode::kUnavailable, {folder_.path(), "it is a directory"},
              [&] { WriteSafetensors(folder_.path(), {}); });
  ExpectError(ErrorCode::kUnavailable, {"/dev/null", "not a regular file"},
              [&] { WriteSafetensors("/dev/null", {}); });
}

}  // namespace
}  // namespace octavo
