// Whole nets on a card, by own kernels, against the CPU backend.
#include <gtest/gtest.h>

#include "kernels_cpu/cpu.h"
#include "nets/zoo.h"
#include "tests/kernels_cuda/one_algo.h"
#include "tests/nets/net_lab.h"

namespace convlab {
namespace {

struct Iteration {
  double loss;
  std::map<std::string, Values> gradients;
};

Iteration iterate(const Graph& graph, const std::string& algo, Layout layout, Device& device,
                  const AlgoRegistry& registry) {
  NetLab lab(graph,
             uniform_plan(graph, Mode::training, DType::f32, algo, layout, device, 0, registry),
             device, {.dropout_seed = 3}, 1, registry);
  Iteration result;
  result.loss = lab.forward();
  lab.net().backward();
  result.gradients = lab.gradients();
  return result;
}

class CardNets : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Nets, CardNets, testing::Values("resnet18", "vgg16"));

TEST_P(CardNets, HaveTheGradientsOfTheCpu) {
  if (const std::string obstacle = cuda_obstacle(); !obstacle.empty()) GTEST_SKIP() << obstacle;
  const Graph graph = make_net(GetParam(), 4);
  const auto cpu = make_cpu_device(), card = make_cuda_device();
  const Iteration expected = iterate(graph, "implicit_gemm", Layout::nchw, *cpu, cpu_registry());
  for (const Layout layout : {Layout::nchw, Layout::nhwc}) {
    SCOPED_TRACE(to_string(layout));
    const Iteration got = iterate(graph, "implicit_gemm", layout, *card, cuda_registry());
    EXPECT_NEAR(got.loss, expected.loss, 1e-4 * expected.loss);
    ASSERT_EQ(got.gradients.size(), expected.gradients.size());
    for (const auto& [name, gradient] : expected.gradients)
      EXPECT_LE(relative_error(got.gradients.at(name), gradient), 1e-2) << name;
  }
}

}  // namespace
}  // namespace convlab
