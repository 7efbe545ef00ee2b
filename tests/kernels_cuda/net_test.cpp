// Whole iterations of small nets on CUDA, with our own kernels only, against the CPU backend:
// forward, loss, backward and update, and inference with batch norm folded. Runs on the CPU's
// executor or on a card.
#include <gtest/gtest.h>

#include "kernels_cpu/cpu.h"
#include "tests/kernels_cuda/one_algo.h"
#include "tests/nets/net_lab.h"
#include "tests/nets/workers.h"
#include "tests/problems.h"

namespace convlab {

using namespace nets;
namespace {

const NetAlgos& cuda_algos() {
  static const NetAlgos algos(cuda_registry(), cuda_recurrent());
  return algos;
}

struct Iteration {
  double loss = 0;
  Values output;
  std::map<std::string, Values> gradients, updated;
};

// Trains for two steps; the second starts from the first one's updates.
Iteration train(const Graph& graph, const NetPlan& plan, Device& device, const NetAlgos& algos,
                bool poison) {
  const NetOptions options{.input_gradient = true, .dropout_seed = 3, .poison = poison};
  NetLab lab(graph, plan, device, options, 1, algos);
  Iteration result;
  for (int step = 0; step < 2; ++step) {
    result.loss = lab.forward();
    lab.net().backward();
    result.output = lab.output();
    result.gradients = lab.gradients();
    lab.net().update(SgdDesc{.rate = 0.05, .momentum = 0.9, .weight_decay = 1e-3});
  }
  for (const Parameter& p : lab.net().parameters())
    result.updated[p.name] = lab.read(p.value, p.count);
  return result;
}

// Relative to each tensor's norm.
void expect_same(const std::map<std::string, Values>& got,
                 const std::map<std::string, Values>& expected, double tolerance) {
  ASSERT_EQ(got.size(), expected.size());
  for (const auto& [name, values] : expected)
    EXPECT_LE(relative_error(got.at(name), values), tolerance) << name;
}

class CudaNets : public testing::TestWithParam<SmallNet> {
 protected:
  void SetUp() override {
    if (const std::string obstacle = cuda_obstacle(); !obstacle.empty()) GTEST_SKIP() << obstacle;
    card_ = make_cuda_device();
  }

  // On the card by one algorithm in one layout, on the CPU by the definition, in the same data
  // type.
  void expect_same_training(const std::string& algo, Layout layout, DType dtype, double tolerance) {
    SCOPED_TRACE(algo + " in " + std::string(to_string(layout)));
    const Iteration got =
        train(graph_, plan(Mode::training, algo, layout, dtype), *card_, cuda_algos(), true);
    const Iteration expected =
        train(graph_, uniform_plan(graph_, Mode::training, dtype, "direct", Layout::nchw, *cpu_),
              *cpu_, cpu_algos(), false);
    EXPECT_NEAR(got.loss, expected.loss, tolerance * std::abs(expected.loss));
    EXPECT_LE(relative_error(got.output, expected.output), tolerance);
    expect_same(got.gradients, expected.gradients, tolerance);
    expect_same(got.updated, expected.updated, tolerance);
  }

  NetPlan plan(Mode mode, const std::string& algo, Layout layout, DType dtype) const {
    return uniform_plan(graph_, mode, dtype, algo, layout, *card_, 0, cuda_algos());
  }

  const Graph graph_ = GetParam().make(3);
  const std::unique_ptr<Device> cpu_ = make_cpu_device({2, ""});
  std::unique_ptr<Device> card_;
};
INSTANTIATE_TEST_SUITE_P(Nets, CudaNets, testing::ValuesIn(small_nets()),
                         [](const auto& info) { return info.param.name; });

// f32 rounds at 6e-8 per operation; batch and layer norm over few values amplify that.
TEST_P(CudaNets, TrainAsOnTheCpu) {
  expect_same_training("implicit_gemm", Layout::nhwc, DType::f32, 1e-4);
  if (!reduced()) expect_same_training("implicit_gemm", Layout::nchw, DType::f32, 1e-4);
}

TEST_P(CudaNets, TrainAsOnTheCpuInF64) {
  if (reduced()) GTEST_SKIP() << "the same kernels as in f32";
  for (const Layout layout : {Layout::nchw, Layout::nhwc})
    expect_same_training("direct", layout, DType::f64, 1e-10);
}

TEST_P(CudaNets, InferAsOnTheCpu) {
  NetLab lab(graph_,
             uniform_plan(graph_, Mode::inference, DType::f32, "direct", Layout::nchw, *cpu_),
             *cpu_);
  lab.forward();
  const Values expected = lab.output();
  for (const Layout layout : {Layout::nchw, Layout::nhwc})
    for (const char* algo : {"implicit_gemm", "winograd", "fft"}) {
      SCOPED_TRACE(std::string(algo) + " in " + std::string(to_string(layout)));
      NetLab cuda(graph_, plan(Mode::inference, algo, layout, DType::f32), *card_, {.poison = true},
                  1, cuda_algos());
      cuda.forward();
      EXPECT_LE(relative_error(cuda.output(), expected), 2e-5);
    }
}

// Several workers on one card, synchronised through the host.
TEST(CudaSyncBatchNorm, WorkersTrainAsOneWithTheWholeBatch) {
  if (const std::string obstacle = cuda_obstacle(); !obstacle.empty()) GTEST_SKIP() << obstacle;
  const auto expect_whole_batch = [](const std::string& net, const std::string& algo, Layout layout,
                                     DType dtype, double tolerance) {
    SCOPED_TRACE(net);
    const WorkersSetting setting{
        .graph = [&](std::int64_t batch) { return smooth(small_net(net).make(batch)); },
        .algo = algo,
        .layout = layout,
        .dtype = dtype,
        .device = [] { return make_cuda_device(); },
        .registry = &cuda_registry()};
    expect_same(train_on_workers(setting, 2, 4), train_on_workers(setting, 1, 4), tolerance);
  };
  expect_whole_batch("residual", "implicit_gemm", Layout::nchw, DType::f32, 1e-5);
  expect_whole_batch("residual", "direct", Layout::nhwc, DType::f64, 1e-12);
}

}  // namespace
}  // namespace convlab
