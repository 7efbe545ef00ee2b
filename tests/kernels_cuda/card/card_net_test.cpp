// Whole nets on a card, with our own kernels, against the CPU backend.
#include <gtest/gtest.h>

#include "kernels_cpu/cpu.h"
#include "nets/zoo/zoo.h"
#include "tests/kernels_cuda/one_algo.h"
#include "tests/nets/net_lab.h"

namespace convlab {

using namespace nets;
namespace {

struct Case {
  const char* net;
  const char* algo;
  Layout layout;
  DType dtype;
  double tolerance;  // relative to each gradient's norm
};

// In f32, rounding changes the sign of some ReLU inputs: two of the CPU's algorithms differ by up
// to 1.2e-2 in these nets.
const Case cases[]{{"resnet18", "implicit_gemm", Layout::nchw, DType::f32, 3e-2},
                   {"resnet18", "implicit_gemm", Layout::nhwc, DType::f32, 3e-2},
                   {"resnet18", "direct", Layout::nchw, DType::f64, 1e-9},
                   {"vgg16", "implicit_gemm", Layout::nhwc, DType::f32, 3e-2}};

struct Iteration {
  double loss;
  std::map<std::string, Values> gradients;
};

Iteration iterate(const Graph& graph, const Case& c, Layout layout, Device& device,
                  const AlgoRegistry& registry) {
  NetLab lab(graph,
             uniform_plan(graph, Mode::training, c.dtype, c.algo, layout, device, 0, registry),
             device, {.dropout_seed = 3}, 1, registry);
  Iteration result;
  result.loss = lab.forward();
  lab.net().backward();
  result.gradients = lab.gradients();
  return result;
}

class CardNets : public testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Nets, CardNets, testing::ValuesIn(cases), [](const auto& info) {
  return fmt::format("{}_{}_{}", info.param.net, to_string(info.param.layout),
                     to_string(info.param.dtype));
});

TEST_P(CardNets, HaveTheGradientsOfTheCpu) {
  if (const std::string obstacle = cuda_obstacle(); !obstacle.empty()) GTEST_SKIP() << obstacle;
  const Case& c = GetParam();
  const Graph graph = make_net(c.net, 4);
  const auto cpu = make_cpu_device(), card = make_cuda_device();
  const Iteration expected = iterate(graph, c, Layout::nchw, *cpu, cpu_registry());
  const Iteration got = iterate(graph, c, c.layout, *card, cuda_registry());
  EXPECT_NEAR(got.loss, expected.loss, 1e-5 * expected.loss);
  ASSERT_EQ(got.gradients.size(), expected.gradients.size());
  for (const auto& [name, gradient] : expected.gradients)
    EXPECT_LE(relative_error(got.gradients.at(name), gradient), c.tolerance) << name;
}

}  // namespace
}  // namespace convlab
