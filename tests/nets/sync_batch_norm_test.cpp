// Synchronised batch norm: several workers with their shares of a batch train as one net with all
// of it.
#include <gtest/gtest.h>

#include <stdexcept>

#include "conv/error.h"
#include "kernels_cpu/cpu.h"
#include "nets/tensor.h"
#include "nets/zoo/zoo.h"
#include "tests/nets/scaled.h"
#include "tests/nets/workers.h"

namespace convlab::nets {
namespace {

std::vector<SmallNet> nets_with_batch_norm() {
  std::vector<SmallNet> nets;
  for (const char* name : {"residual", "shortcuts", "branches", "normalised_input"})
    nets.push_back(small_net(name));
  nets.push_back({"resnet20", [](std::int64_t batch) {
                    return scaled(cifar_resnet(20, batch),
                                  {.batch = batch, .image = 16, .divisor = 2, .outputs = 10});
                  }});
  return nets;
}

class SyncBatchNorm : public testing::TestWithParam<SmallNet> {
 protected:
  static constexpr std::int64_t batch = 8;

  static WorkersSetting setting(const std::string& algo, Layout layout, DType dtype) {
    return {.graph = GetParam().make, .algo = algo, .layout = layout, .dtype = dtype, .device = [] {
              return make_cpu_device({1, ""});
            }};
  }
  static void expect_whole_batch(const WorkersSetting& s, double tolerance) {
    SCOPED_TRACE(s.algo + " in " + std::string(to_string(s.layout)));
    const WorkersResult expected = train_on_workers(s, 1, batch);
    for (const std::size_t workers : {2u, 4u}) {
      SCOPED_TRACE(workers);
      expect_same(train_on_workers(s, workers, batch), expected, tolerance);
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Nets, SyncBatchNorm, testing::ValuesIn(nets_with_batch_norm()),
                         [](const auto& info) { return info.param.name; });

TEST_P(SyncBatchNorm, WorkersTrainAsOneWithTheWholeBatch) {
  for (const Layout layout : {Layout::nchw, Layout::nhwc, Layout::nchw8c})
    expect_whole_batch(setting("direct", layout, DType::f64), 1e-12);
}

// Twenty layers add to what rounding makes different.
TEST_P(SyncBatchNorm, WorkersTrainAsOneInF32) {
  const double tolerance = GetParam().name == "resnet20" ? 1e-4 : 1e-5;
  for (const auto& [algo, layout] :
       {std::pair("implicit_gemm", Layout::nchw16c), std::pair("im2col", Layout::nhwc)}) {
    WorkersSetting s = setting(algo, layout, DType::f32);
    s.graph = [](std::int64_t n) { return smooth(GetParam().make(n)); };
    expect_whole_batch(s, tolerance);
  }
}

TEST_P(SyncBatchNorm, WithoutItStatisticsAreEachWorkersOwn) {
  WorkersSetting s = setting("direct", Layout::nchw, DType::f64);
  const WorkersResult expected = train_on_workers(s, 1, batch);
  s.synchronised = false;
  EXPECT_GT(relative_error(train_on_workers(s, 2, batch).output, expected.output), 1e-3);
}

// What the header promises, by a single worker: nothing to add.
TEST_P(SyncBatchNorm, IsCalledOnceForEachBatchNormInBothDirections) {
  const auto device = make_cpu_device({1, ""});
  const Graph graph = GetParam().make(2);
  std::vector<std::size_t> sizes;
  NetOptions options;
  options.all_reduce_sums = [&](std::span<double> sums) { sizes.push_back(sums.size()); };
  const auto plan = [&](Mode mode) {
    return uniform_plan(graph, mode, DType::f64, "direct", Layout::nchw, *device);
  };
  NetLab plain(graph, plan(Mode::training), *device);
  NetLab lab(graph, plan(Mode::training), *device, options);
  EXPECT_NEAR(lab.forward(), plain.forward(), 1e-12);
  lab.net().backward();
  // Two sums a channel; forward also the number of elements.
  std::vector<std::size_t> expected;
  for (const Node& node : graph.nodes())
    if (std::holds_alternative<BatchNorm>(node.layer))
      expected.push_back(std::size_t(2 * node.shape.c + 1));
  for (std::size_t i = expected.size(); i-- > 0;) expected.push_back(expected[i] - 1);
  EXPECT_EQ(sizes, expected);

  EXPECT_EQ(lab.net().memory().total, Net::memory_needed(graph, plan(Mode::training), cpu_algos(),
                                                         *device, options, SgdDesc{.momentum = 0})
                                          .total);
  sizes.clear();
  NetLab inference(graph, plan(Mode::inference), *device, options);
  inference.forward();
  EXPECT_TRUE(sizes.empty());
}

// Sums of squares must not cancel a small variance beside a large mean.
TEST(SyncBatchNormSums, KeepTheVarianceBesideALargeMean) {
  const auto device = make_cpu_device({1, ""});
  const Graph graph = small_net("normalised_input").make(8);
  const NetPlan plan =
      uniform_plan(graph, Mode::training, DType::f32, "direct", Layout::nchw, *device);
  NetOptions options;
  const auto output = [&] {
    NetLab lab(graph, plan, *device, options);
    Values x = lab.input();
    for (double& v : x) v += 3000;
    lab.set_input(x);
    lab.forward();
    return lab.output();
  };
  const Values expected = output();
  options.all_reduce_sums = [](std::span<double>) {};
  EXPECT_LE(relative_error(output(), expected), 1e-6);
}

TEST(SyncBatchNormErrors, EndTheStep) {
  const auto device = make_cpu_device({1, ""});
  const Graph graph = small_net("residual").make(2);
  NetOptions options;
  options.all_reduce_sums = [](std::span<double>) { throw std::runtime_error("a worker is lost"); };
  NetLab lab(graph,
             uniform_plan(graph, Mode::training, DType::f32, "direct", Layout::nchw, *device),
             *device, options);
  EXPECT_THROW(lab.forward(), std::runtime_error);
  EXPECT_THROW(lab.net().backward(), InputError);
}

}  // namespace
}  // namespace convlab::nets
