// Processors and memory available to this process, on machines simulated by files.
#include "kernels_cpu/device/cpu_limits.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace convlab {
namespace {

class CpuLimits : public testing::Test {
 protected:
  CpuLimits() {
    std::string name = testing::TempDir() + "convlab_limits_XXXXXX";
    root_ = mkdtemp(name.data());
  }
  ~CpuLimits() override { std::filesystem::remove_all(root_); }

  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text << '\n';
  }
  int cores(int processors) {
    cpu_set_t affinity;
    CPU_ZERO(&affinity);
    for (int cpu = 0; cpu < processors; ++cpu) CPU_SET(cpu, &affinity);
    return usable_cores(affinity, root_);
  }

  std::string root_;
};

TEST_F(CpuLimits, WithoutFilesEachProcessorCounts) { EXPECT_EQ(cores(6), 6); }

TEST_F(CpuLimits, SiblingsAreOneCore) {
  for (int cpu = 0; cpu < 8; ++cpu)
    write("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list",
          std::to_string(cpu % 4) + "," + std::to_string(cpu % 4 + 4));
  EXPECT_EQ(cores(8), 4);
  EXPECT_EQ(cores(5), 4);  // the affinity has one pair of siblings
  EXPECT_EQ(cores(2), 2);
}

TEST_F(CpuLimits, QuotaOfVersion2OnTheWayUp) {
  write("/proc/self/cgroup", "0::/a/b");
  write("/sys/fs/cgroup/a/b/cpu.max", "max 100000");
  EXPECT_EQ(cores(64), 64);
  write("/sys/fs/cgroup/a/cpu.max", "250000 100000");
  EXPECT_EQ(cores(64), 2);
  write("/sys/fs/cgroup/a/b/cpu.max", "50000 100000");
  EXPECT_EQ(cores(64), 1);
}

TEST_F(CpuLimits, QuotaOfVersion2InAContainer) {
  write("/proc/self/cgroup", "0::/");
  write("/sys/fs/cgroup/cpu.max", "400000 100000");
  EXPECT_EQ(cores(64), 4);
  EXPECT_EQ(cores(3), 3);
}

TEST_F(CpuLimits, QuotaOfVersion1) {
  write("/proc/self/cgroup", "5:cpuset:/x\n4:cpu,cpuacct:/docker/c\n3:memory:/docker/c\n0::/");
  write("/sys/fs/cgroup/cpu/docker/c/cpu.cfs_quota_us", "-1");
  write("/sys/fs/cgroup/cpu/docker/c/cpu.cfs_period_us", "100000");
  EXPECT_EQ(cores(16), 16);
  write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "300000");
  write("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000");
  EXPECT_EQ(cores(16), 3);
}

TEST_F(CpuLimits, MemoryOfEitherVersion) {
  write("/proc/self/cgroup", "3:memory:/c\n0::/d");
  const std::int64_t all = usable_memory(root_);
  EXPECT_GT(all, 1 << 26);
  write("/sys/fs/cgroup/memory/c/memory.limit_in_bytes", "9223372036854771712");
  write("/sys/fs/cgroup/d/memory.max", "max");
  EXPECT_EQ(usable_memory(root_), all);
  write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "40000000");
  EXPECT_EQ(usable_memory(root_), 40000000);
  write("/sys/fs/cgroup/d/memory.max", "30000000");
  EXPECT_EQ(usable_memory(root_), 30000000);
}

}  // namespace
}  // namespace convlab
