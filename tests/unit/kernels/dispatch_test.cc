// Which kernels a process gets.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <octavo/error.h>

#include "unit/kernels/kernel_test_support.h"

namespace octavo {
namespace {

using ::testing::HasSubstr;

void ExpectComplete(const KernelTable& table) {
  SCOPED_TRACE(table.isa);
  for (int format = 0; format < kLinearFormats; ++format) {
    for (int mode = 0; mode < kActivationModes; ++mode) {
      const LinearKernel& kernel = table.linear[format][mode];
      const bool computable =
          IsComputable(static_cast<LinearFormat>(format), static_cast<ActivationMode>(mode));
      EXPECT_EQ(kernel.run != nullptr, computable);
      if (!computable) continue;
      ASSERT_NE(kernel.name, nullptr);
      EXPECT_EQ(kernel.prepare == nullptr, kernel.prepared_bytes == nullptr);
    }
  }
  EXPECT_NE(table.rows.rms_norm, nullptr);
  EXPECT_NE(table.rows.rope, nullptr);
  EXPECT_NE(table.rows.gated_activation, nullptr);
  EXPECT_NE(table.rows.add, nullptr);
  EXPECT_NE(table.rows.to_f32, nullptr);
  EXPECT_NE(table.rows.from_f32, nullptr);
  EXPECT_NE(table.rows.softmax_statistics, nullptr);
  EXPECT_NE(table.attention, nullptr);
  EXPECT_NE(table.attention_scratch_floats, nullptr);
  EXPECT_NE(table.quantize_rows_s8, nullptr);
  EXPECT_NE(table.quantize_rows_block, nullptr);
  EXPECT_NE(table.pack_rows, nullptr);
  EXPECT_NE(table.pack_rows_s4, nullptr);
}

TEST(Dispatch, EveryResolvedTableIsComplete) {
  for (const KernelTable& table : testing::SupportedTables()) ExpectComplete(table);
  EXPECT_STREQ(AllKernelTables().back()->isa, "scalar");
}

TEST(Dispatch, KernelNamesEndInTheirInstructionSet) {
  for (const KernelTable* table : AllKernelTables()) {
    for (const auto& modes : table->linear) {
      for (const LinearKernel& kernel : modes) {
        if (kernel.name == nullptr) continue;
        EXPECT_TRUE(std::string(kernel.name).ends_with(std::string("__") + table->isa))
            << kernel.name;
      }
    }
  }
}

TEST(Dispatch, TakesTheBestOfEachTable) {
  for (const KernelTable& table : testing::SupportedTables()) {
    for (const LinearFormat format : {LinearFormat::kF32, LinearFormat::kS8Channel}) {
      const LinearKernel& kernel = table.linear[static_cast<int>(format)][0];
      const std::string isa = table.isa == std::string("avx512_vnni") ? "avx512" : table.isa;
      EXPECT_TRUE(std::string(kernel.name).ends_with("__" + isa)) << kernel.name;
    }
  }
}

TEST(Dispatch, RefusesUnknownNamesWithTheKnownOnes) {
  try {
    ResolveKernels("avx1024");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(error.what(), HasSubstr("\"avx1024\""));
    EXPECT_THAT(error.what(), HasSubstr("scalar"));
  }
}

TEST(Dispatch, RefusesWhatTheCpuLacks) {
  for (const KernelTable* table : AllKernelTables()) {
    if (table->supported(HostCpuFeatures())) continue;
    try {
      ResolveKernels(table->isa);
      FAIL() << "no error for " << table->isa;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_THAT(error.what(), HasSubstr("not supported by this CPU"));
      EXPECT_THAT(error.what(), HasSubstr("scalar"));
    }
  }
}

TEST(Dispatch, FeaturesDecideWhatIsSupported) {
  CpuFeatures features;
  for (const KernelTable* table : AllKernelTables()) {
    EXPECT_EQ(table->supported(features), std::string(table->isa) == "scalar");
  }
  features.avx2_fma_f16c = features.avx512 = features.avx512_vnni = true;
  for (const KernelTable* table : AllKernelTables()) EXPECT_TRUE(table->supported(features));
}

// HostKernels decides once in a process, so each setting is tried in a process of its own.
int HostIsa(const char* setting, const char* expected) {
  setenv("OCTAVO_ISA", setting, 1);
  try {
    return std::strcmp(HostKernels().isa, expected) == 0 ? 0 : 1;
  } catch (const Error& error) {
    const bool named = std::strstr(error.what(), "OCTAVO_ISA") != nullptr;
    return named && error.code() == ErrorCode::kInvalidArgument ? 2 : 3;
  }
}

TEST(DispatchDeathTest, EnvironmentCapsTheInstructionSet) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  using ::testing::ExitedWithCode;
  const std::string best = testing::SupportedTables().front().isa;
  EXPECT_EXIT(exit(HostIsa("scalar", "scalar")), ExitedWithCode(0), "");
  EXPECT_EXIT(exit(HostIsa("", best.c_str())), ExitedWithCode(0), "");
  EXPECT_EXIT(exit(HostIsa(best.c_str(), best.c_str())), ExitedWithCode(0), "");
  EXPECT_EXIT(exit(HostIsa("pentium", "")), ExitedWithCode(2), "");
}

}  // namespace
}  // namespace octavo
