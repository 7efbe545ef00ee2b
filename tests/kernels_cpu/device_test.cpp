#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "conv/error.h"
#include "kernels_cpu/cpu.h"

namespace convlab {
namespace {

TEST(CpuDevice, DescribesThisMachine) {
  const DeviceInfo info = make_cpu_device()->info();
  EXPECT_FALSE(info.name.empty());
  EXPECT_GE(info.threads, 1);
  EXPECT_GE(info.l1_bytes, 8 << 10);
  EXPECT_GE(info.l2_bytes, info.l1_bytes);
  EXPECT_GE(info.memory_bytes, std::int64_t{1} << 26);
  EXPECT_EQ(info.isa, supported_isas().back());
}

TEST(CpuDevice, TakesTheIsaFromOptionsBeforeTheEnvironment) {
  const std::string worst = supported_isas().front();
  ASSERT_EQ(setenv("CONVLAB_ISA", worst.c_str(), 1), 0);
  EXPECT_EQ(make_cpu_device()->info().isa, worst);
  const std::map<std::string, int> vector_bytes{{"baseline", 16}, {"avx2", 32}, {"avx512", 64}};
  EXPECT_EQ(make_cpu_device()->info().vector_bytes, vector_bytes.at(worst));
  EXPECT_EQ(make_cpu_device({0, supported_isas().back()})->info().isa, supported_isas().back());
  ASSERT_EQ(setenv("CONVLAB_ISA", "sse9", 1), 0);
  EXPECT_THROW(make_cpu_device(), InputError);
  ASSERT_EQ(unsetenv("CONVLAB_ISA"), 0);
  EXPECT_THROW(make_cpu_device({-1, ""}), InputError);
  make_cpu_device();
}

TEST(CpuDevice, SaysWhetherTheCpuOrTheBuildLacksAnIsa) {
#if defined(__x86_64__)
  const std::vector<std::string> here = supported_isas();
  const std::map<std::string, bool> cpu_has{{"baseline", true},
                                            {"avx2", __builtin_cpu_supports("avx2") != 0},
                                            {"avx512", __builtin_cpu_supports("avx512vl") != 0}};
  if (here.size() == cpu_has.size()) GTEST_SKIP() << "the CPU and the build have every ISA";
  for (const auto& [isa, cpu] : cpu_has) {
    if (std::find(here.begin(), here.end(), isa) != here.end()) continue;
    try {
      make_cpu_device({0, isa});
      ADD_FAILURE() << isa;
    } catch (const EnvironmentError& e) {
      const std::string expected = std::string("this ") + (cpu ? "build" : "CPU") + " has no " +
                                   isa + ": expected one of " + here.front();
      EXPECT_TRUE(std::string(e.what()).starts_with(expected)) << e.what();
    }
  }
  make_cpu_device();
#endif
}

TEST(CpuDevice, DescribesTheMachineThatTheEnvironmentSays) {
  const char* const before = std::getenv("CONVLAB_MACHINE");
  const std::string kept = before ? before : "";
  ASSERT_EQ(setenv("CONVLAB_MACHINE", "l2=262144,l3=0,threads=3", 1), 0);
  const DeviceInfo info = make_cpu_device()->info();
  EXPECT_EQ(info.l2_bytes, 262144);
  EXPECT_EQ(info.l3_bytes, 0);
  EXPECT_EQ(info.threads, 3);
  EXPECT_EQ(make_cpu_device({2, ""})->info().threads, 2);  // explicit
  for (const char* nonsense : {"l2=0", "l4=7", "threads=-1", "threads=9999999999", "big"}) {
    ASSERT_EQ(setenv("CONVLAB_MACHINE", nonsense, 1), 0);
    EXPECT_THROW(make_cpu_device(), InputError) << nonsense;
  }
  if (before)
    setenv("CONVLAB_MACHINE", kept.c_str(), 1);
  else
    unsetenv("CONVLAB_MACHINE");
}

TEST(CpuDevice, RefusesMoreMemoryThanThereIs) {
  const auto device = make_cpu_device();
  EXPECT_THROW(device->allocate(std::size_t{1} << 62), OutOfMemory);
  const Buffer buffer = device->allocate(5 << 20);
  EXPECT_EQ(buffer.bytes(), std::size_t{5} << 20);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 64, 0u);
}

// The index of every layout as defined in conv/types/layout.h, independent of the implementation.
std::int64_t offset(const TensorDesc& t, std::int64_t n, std::int64_t c, std::int64_t h,
                    std::int64_t w) {
  if (t.layout == Layout::nchw) return ((n * t.c + c) * t.h + h) * t.w + w;
  if (t.layout == Layout::nhwc) return ((n * t.h + h) * t.w + w) * t.c + c;
  const std::int64_t block = channel_block(t.layout), blocks = (t.c + block - 1) / block;
  return (((n * blocks + c / block) * t.h + h) * t.w + w) * block + c % block;
}

template <class T>
void expect_every_pair_of_layouts_converts(DType dtype, TensorDesc from) {
  const auto device = make_cpu_device();
  const auto stream = device->make_stream();
  TensorDesc to = from;
  for (const Layout from_layout : all_layouts)
    for (const Layout to_layout : all_layouts) {
      from.layout = from_layout;
      to.layout = to_layout;
      std::vector<T> source(std::size_t(from.elements()), T(0));
      std::vector<T> expected(std::size_t(to.elements()), T(0));
      std::vector<T> result(std::size_t(to.elements()), T(std::nan("")));
      T value = 0;
      for (std::int64_t n = 0; n < from.n; ++n)
        for (std::int64_t c = 0; c < from.c; ++c)
          for (std::int64_t h = 0; h < from.h; ++h)
            for (std::int64_t w = 0; w < from.w; ++w)
              source[std::size_t(offset(from, n, c, h, w))] =
                  expected[std::size_t(offset(to, n, c, h, w))] = ++value;
      device->ops().convert_layout(dtype, from, source.data(), to, result.data(), *stream);
      EXPECT_EQ(result, expected) << to_string(from_layout) << " to " << to_string(to_layout);
    }
}

TEST(ConvertLayout, BetweenAllLayoutsWithZeroPaddingLanes) {
  expect_every_pair_of_layouts_converts<float>(DType::f32, {2, 3, 5, 7});
  expect_every_pair_of_layouts_converts<float>(DType::f32, {1, 37, 9, 11});
  expect_every_pair_of_layouts_converts<double>(DType::f64, {3, 16, 8, 8});
  expect_every_pair_of_layouts_converts<double>(DType::f64, {1, 25, 1, 1});
}

TEST(CpuDevice, EvictionLeavesTheDataAlone) {
  const auto device = make_cpu_device();
  const auto stream = device->make_stream();
  std::vector<std::byte> data(100'001, std::byte{42});
  const ConstSpan spans[] = {data, {}};
  device->evict_from_caches(spans, *stream);
  for (std::byte b : data) ASSERT_EQ(b, std::byte{42});
}

TEST(CpuDevice, TimesTheRunsItIsAskedFor) {
  const auto stream = make_cpu_device()->make_stream();
  int calls = 0;
  EXPECT_GT(stream->time([&] { ++calls; }, 5), 0);
  EXPECT_EQ(calls, 5);
}

}  // namespace
}  // namespace convlab
