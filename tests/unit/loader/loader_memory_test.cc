// The loader's memory: panels, whatever the size of a tensor. The limit is the kernel's
// (RLIMIT_DATA), so a buffer of more than that cannot be had at all.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <octavo/error.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/thread_pool.h"
#include "loader_test_support.h"
#include "tensor/buffer.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define OCTAVO_SANITIZED 1
#endif
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define OCTAVO_SANITIZED 1
#endif
#endif

namespace octavo {
namespace {

constexpr uint64_t kMiB = 1 << 20;

// Bytes that RLIMIT_DATA counts in this process.
uint64_t DataBytes() {
  std::ifstream status("/proc/self/status");
  std::string word;
  uint64_t kilobytes = 0;
  while (status >> word) {
    if (word == "VmData:" && status >> kilobytes) return kilobytes * 1024;
  }
  return 0;
}

// Lets the process have `extra` bytes more than it has, until this object goes.
class DataLimit {
 public:
  explicit DataLimit(uint64_t extra) {
    getrlimit(RLIMIT_DATA, &before_);
    rlimit limit = before_;
    limit.rlim_cur = DataBytes() + extra;
    set_ = setrlimit(RLIMIT_DATA, &limit) == 0;
  }
  ~DataLimit() { setrlimit(RLIMIT_DATA, &before_); }
  bool set() const { return set_; }

 private:
  rlimit before_{};
  bool set_ = false;
};

class CountingSink : public WeightSink {
 public:
  void BeginWeight(WeightId, const WeightFormat&) override {}
  void PutPanel(WeightId, const WeightPanel& panel) override { rows_ += panel.rows; }
  void EndWeights() override { ended_ = true; }
  int64_t rows() const { return rows_; }
  bool ended() const { return ended_; }

 private:
  std::atomic<int64_t> rows_{0};
  bool ended_ = false;
};

constexpr int64_t kOut = 32768, kIn = 4096;  // a linear of 256 MiB in bf16

// A sparse file: zeros that take no space on the disk.
void WriteZeroCheckpoint(const std::string& directory) {
  std::filesystem::copy(testing::FixturePath("storage/plain/config.json"),
                        directory + "/config.json");
  std::string header = R"({"embed.weight":{"dtype":"BF16","shape":[16,4096],)"
                       R"("data_offsets":[0,131072]},)"
                       R"("linear.weight":{"dtype":"BF16","shape":[32768,4096],)"
                       R"("data_offsets":[131072,268566528]},)"
                       R"("head.weight":{"dtype":"BF16","shape":[16,32768],)"
                       R"("data_offsets":[268566528,269615104]}})";
  const uint64_t length = header.size();
  header.insert(0, reinterpret_cast<const char*>(&length), sizeof length);
  testing::WriteFile(directory + "/model.safetensors", header);
  std::filesystem::resize_file(directory + "/model.safetensors", header.size() + 269615104);
}

TEST(LoaderMemory, ALinearOf256MiBStreamsThroughAFewMiB) {
#ifdef OCTAVO_SANITIZED
  GTEST_SKIP() << "a sanitizer's own memory is in the way of RLIMIT_DATA";
#endif
  testing::TempDir directory;
  WriteZeroCheckpoint(directory.path());
  const Checkpoint checkpoint = Checkpoint::Open(directory.path());
  const Graph graph = testing::OneLinearGraph(kOut, kIn);
  const LoadPlan plan = MakeLoadPlan(checkpoint, graph, {.quantization = "int8"});
  ThreadPool pool(2);
  CountingSink sink;
  const DataLimit limit(8 * kMiB);
  ASSERT_TRUE(limit.set());
  // The limit bites: neither the tensor nor its quantized form can be held.
  EXPECT_THROW(Buffer(256 * kMiB), Error);
  EXPECT_THROW(Buffer(128 * kMiB), Error);
  LoadWeights(plan, graph, sink, pool);
  EXPECT_EQ(sink.rows(), kOut + 16 + 16);
  EXPECT_TRUE(sink.ended());
}

}  // namespace
}  // namespace octavo
