// The fixtures of shared/fixtures/storage that are damaged in one file, each with its message.
#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <vector>

#include "checkpoint/safetensors_file.h"
#include "expect_error.h"
#include "test_support.h"

namespace octavo {
namespace {

constexpr const char* kTensor = "model.layers.0.self_attn.q_proj.weight";

struct Damaged {
  std::string folder;
  std::vector<std::string> says;
  friend void PrintTo(const Damaged& damaged, std::ostream* stream) { *stream << damaged.folder; }
};

class DamagedFixture : public ::testing::TestWithParam<Damaged> {};

TEST_P(DamagedFixture, IsRefused) {
  const std::string path =
      testing::FixturePath("storage/" + GetParam().folder + "/model.safetensors");
  std::vector<std::string> says = GetParam().says;
  says.push_back(path);
  testing::ExpectError(ErrorCode::kDataLoss, says, [&] { SafetensorsFile file(path); });
}

INSTANTIATE_TEST_SUITE_P(
    Storage, DamagedFixture,
    ::testing::Values(
        Damaged{"bad_json", {"header is not valid JSON at byte 2281", "line 1, column 2281"}},
        Damaged{"dtype_unknown", {kTensor, "unknown dtype \"X9\"", "expected one of BF16"}},
        Damaged{"duplicate_key", {kTensor, "named twice in the header"}},
        Damaged{"empty_file", {"the file has 0 bytes, expected at least 8"}},
        Damaged{"gap", {"model.layers.1.input_layernorm.weight", "leaves a hole of 64 bytes"}},
        Damaged{"header_huge", {"header length 4611686018427387904, expected at most 100000000"}},
        Damaged{"header_too_long",
                {"header length 10000000 runs past the end of the file", "has 166624 bytes",
                 "expected at least 10000008"}},
        Damaged{"negative_dim", {kTensor, "negative dimension -64"}},
        Damaged{"not_an_object", {"header is not a JSON object", "found '['"}},
        Damaged{
            "offset_past_end",
            {kTensor, "[1099511718144, 1099511726336)", "lies past the end", "has 166640 bytes"}},
        Damaged{"overlap",
                {"model.layers.0.self_attn.v_proj.weight",
                 "overlaps that of model.layers.0.self_attn.k_proj.weight"}},
        Damaged{"reversed_offsets", {kTensor, "[98560, 90368) ends before it starts"}},
        Damaged{"shape_overflow", {kTensor, "[8589934592, 8589934592] overflows 64 bits"}},
        Damaged{"size_mismatch",
                {kTensor, "BF16 [64, 63] takes 8064 bytes", "[90368, 98560) has 8192"}},
        Damaged{"trailing_bytes",
                {"100 bytes after the last tensor", "has 166724 bytes", "describes 166624"}},
        Damaged{"truncated", {"lies past the end", "has 165513 bytes", "asks for 166624"}},
        Damaged{"truncated_in_header",
                {"header length 2136 runs past the end of the file", "has 300 bytes",
                 "expected at least 2144"}}),
    [](const auto& test) { return test.param.folder; });

class GoodFixture : public ::testing::TestWithParam<const char*> {};

// The odd but valid ones hold the same tensors as `plain`, byte for byte.
TEST_P(GoodFixture, HoldsTheTensorsOfPlain) {
  const SafetensorsFile plain(testing::FixturePath("storage/plain/model.safetensors"));
  const SafetensorsFile file(
      testing::FixturePath(std::string("storage/") + GetParam() + "/model.safetensors"));
  EXPECT_EQ(plain.tensors().size(), 21u);
  EXPECT_EQ(file.tensors().size(), plain.tensors().size());
  for (const TensorEntry& expected : plain.tensors()) {
    SCOPED_TRACE(expected.name);
    const TensorEntry* found = file.Find(expected.name);
    ASSERT_NE(found, nullptr);
    EXPECT_EQ(found->dtype, expected.dtype);
    EXPECT_EQ(found->shape, expected.shape);
    ASSERT_EQ(found->bytes, expected.bytes);
    std::vector<std::byte> expected_data(expected.bytes), found_data(found->bytes);
    plain.file().ReadAt(expected.offset, expected_data);
    file.file().ReadAt(found->offset, found_data);
    EXPECT_EQ(found_data, expected_data);
  }
  for (size_t i = 1; i < file.tensors().size(); ++i) {
    EXPECT_LE(file.tensors()[i - 1].offset, file.tensors()[i].offset);
  }
}

INSTANTIATE_TEST_SUITE_P(Storage, GoodFixture,
                         ::testing::Values("no_metadata", "odd_order", "unaligned_header",
                                           "prefer_safetensors"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace octavo
