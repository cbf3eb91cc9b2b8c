#include "base/file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <octavo/error.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>

namespace octavo {
namespace {

class FileTest : public testing::Test {
 protected:
  FileTest() : folder_(testing::TempDir() + "octavo_file_test_" + std::to_string(getpid())) {
    std::filesystem::create_directories(folder_);
  }
  ~FileTest() override { std::filesystem::remove_all(folder_); }

  std::string Write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ + "/" + name) << text;
    return folder_ + "/" + name;
  }

  template <typename Action>
  static std::pair<ErrorCode, std::string> ErrorOf(Action&& action) {
    try {
      action();
    } catch (const Error& error) {
      return {error.code(), error.what()};
    }
    return {ErrorCode::kInternal, "no error"};
  }

  std::string folder_;
};

TEST_F(FileTest, ReadsByPosition) {
  const File file(Write("a.txt", "0123456789"));
  EXPECT_EQ(file.size(), 10u);
  std::array<char, 4> text{};
  file.ReadAt(3, std::as_writable_bytes(std::span(text)));
  EXPECT_EQ(std::string(text.data(), 4), "3456");
}

TEST_F(FileTest, ReadingPastTheEndNamesTheFile) {
  const File file(Write("short.txt", "0123"));
  std::array<std::byte, 8> bytes{};
  const auto [code, message] = ErrorOf([&] { file.ReadAt(2, bytes); });
  EXPECT_EQ(code, ErrorCode::kDataLoss);
  EXPECT_THAT(message, testing::HasSubstr("short.txt"));
  EXPECT_THAT(message, testing::HasSubstr("8 bytes were expected at offset 2"));
}

TEST_F(FileTest, MissingFilesAndDanglingLinksAreNamed) {
  EXPECT_EQ(ErrorOf([&] { File(folder_ + "/none"); }).first, ErrorCode::kNotFound);
  std::filesystem::create_symlink("../blobs/abc", folder_ + "/link");
  const auto [code, message] = ErrorOf([&] { File(folder_ + "/link"); });
  EXPECT_EQ(code, ErrorCode::kNotFound);
  EXPECT_THAT(message, testing::HasSubstr("../blobs/abc"));
  EXPECT_EQ(ErrorOf([&] { File{folder_}; }).first, ErrorCode::kInvalidArgument);
}

TEST_F(FileTest, TextFilesHaveALimit) {
  const std::string path = Write("text", "hello");
  EXPECT_EQ(ReadTextFile(path), "hello");
  EXPECT_EQ(ErrorOf([&] { ReadTextFile(path, 4); }).first, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace octavo
