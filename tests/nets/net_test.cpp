// Whole iterations of small nets: gradients against central differences, all algorithms and layouts
// against each other, and no memory read before it is written.
#include "nets/net.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>

#include "conv/error.h"
#include "kernels_cpu/cpu.h"
#include "nets/tensor.h"
#include "tests/nets/net_lab.h"

namespace convlab::nets {
namespace {

const NetOptions with_input_gradient{.input_gradient = true, .dropout_seed = 3};

struct Setting {
  std::string algo = "direct";
  Layout layout = Layout::nchw;
  DType dtype = DType::f64;
  std::int64_t images = 0;
  NetOptions options = with_input_gradient;
  int threads = 2;
};

struct Iteration {
  double loss;
  Values output;
  std::map<std::string, Values> gradients;
};

Iteration iterate(const SmallNet& small, const Setting& s, std::int64_t batch = 3) {
  const auto device = make_cpu_device({s.threads, ""});
  const Graph graph = small.make(batch);
  const NetPlan plan =
      uniform_plan(graph, Mode::training, s.dtype, s.algo, s.layout, *device, s.images);
  NetLab lab(graph, plan, *device, s.options);
  Iteration result;
  result.loss = lab.forward();
  result.output = lab.output();
  lab.net().backward();
  result.gradients = lab.gradients();
  return result;
}

// The tolerance is relative to each tensor's norm.
void expect_same(const Iteration& got, const Iteration& expected, double tolerance) {
  EXPECT_NEAR(got.loss, expected.loss, tolerance * std::abs(expected.loss));
  EXPECT_LE(relative_error(got.output, expected.output), tolerance);
  ASSERT_EQ(got.gradients.size(), expected.gradients.size());
  for (const auto& [name, gradient] : expected.gradients)
    EXPECT_LE(relative_error(got.gradients.at(name), gradient), tolerance) << name;
}

// Half of the sum of (1 + i % 3) y_i^2.
double own_loss(NetLab& lab) {
  lab.forward();
  double loss = 0, factor = 0;
  for (const double y : lab.output()) {
    loss += (1 + factor) * y * y / 2;
    factor = factor == 2 ? 0 : factor + 1;
  }
  return loss;
}
void own_backward(NetLab& lab) {
  Values gradient = lab.output();
  for (std::size_t i = 0; i < gradient.size(); ++i) gradient[i] *= 1 + double(i % 3);
  lab.backward(gradient);
}

class SmallNets : public testing::TestWithParam<SmallNet> {};
INSTANTIATE_TEST_SUITE_P(Nets, SmallNets, testing::ValuesIn(small_nets()),
                         [](const auto& info) { return info.param.name; });

TEST_P(SmallNets, GradientsAreThoseOfCentralDifferences) {
  const auto device = make_cpu_device({1, ""});
  const Graph graph = GetParam().make(2);
  for (const char* algo : {"direct", "im2col", "fft"}) {
    SCOPED_TRACE(algo);
    check_gradients(graph,
                    uniform_plan(graph, Mode::training, DType::f64, algo, Layout::nchw, *device),
                    *device, with_input_gradient);
  }
}

TEST_P(SmallNets, SquaredErrorHasGradientsToo) {
  const auto device = make_cpu_device({1, ""});
  const Graph graph = GetParam().make(2);
  NetOptions options = with_input_gradient;
  options.loss = Loss::squared_error;
  check_gradients(graph,
                  uniform_plan(graph, Mode::training, DType::f64, "im2col", Layout::nhwc, *device),
                  *device, options);
}

// Works with any loss that the net was made with, and any layout of its output.
TEST_P(SmallNets, ALossOfOnesOwnHasGradientsToo) {
  const auto device = make_cpu_device({1, ""});
  Graph graph = GetParam().make(2);
  NetOptions options = with_input_gradient;
  for (const Loss loss : {Loss::none, Loss::cross_entropy}) {
    options.loss = loss;
    check_gradients(
        graph, uniform_plan(graph, Mode::training, DType::f64, "im2col", Layout::nchw, *device),
        *device, options, {own_loss, own_backward});
  }
}

// An output of several pixels, so that layouts differ.
TEST(OwnLoss, TakesTheGradientInNchw) {
  const auto device = make_cpu_device({1, ""});
  Graph graph("image to image");
  input(graph, {2, 3, 5, 4})
      .conv("a", {.filters = 5, .kernel = 3, .pad = 1})
      .tanh("b")
      .conv("c", {.filters = 7, .kernel = 3, .pad = 1});
  for (const Layout layout : {Layout::nchw, Layout::nhwc, Layout::nchw16c}) {
    NetOptions options = with_input_gradient;
    options.loss = Loss::none;
    check_gradients(graph,
                    uniform_plan(graph, Mode::training, DType::f64, "im2col", layout, *device),
                    *device, options, {own_loss, own_backward});
  }
  NetLab lab(graph,
             uniform_plan(graph, Mode::training, DType::f64, "im2col", Layout::nhwc, *device),
             *device, {.loss = Loss::none});
  lab.forward();
  EXPECT_THROW(lab.net().backward(), InputError);  // it has no built-in loss
  EXPECT_THROW(lab.backward(Values(3)), InputError);
  lab.backward(Values(2 * 7 * 5 * 4, 1.0));
  EXPECT_THROW(lab.backward(Values(2 * 7 * 5 * 4, 1.0)), InputError);  // twice
}

// f32 rounds at 6e-8 per operation; Winograd with large tiles and batch norm over few values
// amplify that.
TEST_P(SmallNets, EveryAlgorithmAndLayoutInF32GivesTheGradientsOfF64) {
  const Iteration expected = iterate(GetParam(), {});
  for (const ConvAlgo* algo : cpu_registry().for_device(DeviceKind::cpu))
    for (const Layout layout : all_layouts) {
      SCOPED_TRACE(algo->info().id + " in " + std::string(to_string(layout)));
      expect_same(iterate(GetParam(), {algo->info().id, layout, DType::f32}), expected, 1e-4);
    }
}

TEST_P(SmallNets, LayoutsAgreeInF64) {
  const Iteration expected = iterate(GetParam(), {});
  for (const Layout layout : {Layout::nhwc, Layout::nchw8c, Layout::nchw16c}) {
    SCOPED_TRACE(to_string(layout));
    expect_same(iterate(GetParam(), {"im2col", layout}), expected, 1e-10);
  }
}

// Each step has a different layout: values are converted on the way forward and their gradients on
// the way back, and gradients are added if several steps read a value.
TEST_P(SmallNets, StepsInDifferentLayoutsGiveTheSame) {
  const Iteration expected = iterate(GetParam(), {});
  const auto device = make_cpu_device({2, ""});
  const Graph graph = GetParam().make(3);
  std::mt19937 random(11);
  const auto any = [&] { return all_layouts[random() % all_layouts.size()]; };
  for (int round = 0; round < 20; ++round) {
    NetPlan plan = uniform_plan(graph, Mode::training, DType::f64, "im2col", Layout::nchw, *device);
    const std::vector<Step> steps = steps_of(graph, Mode::training);
    for (std::size_t i = 1; i < steps.size(); ++i) {
      const Node& node = graph.nodes()[steps[i].node];
      StepPlan& step = plan.steps[i];
      if (needs_nchw(node.layer)) continue;
      step.x_layout = step.y_layout = any();
      if (std::holds_alternative<Concat>(node.layer) ||
          std::holds_alternative<PadChannels>(node.layer) ||
          std::holds_alternative<Slice>(node.layer))
        step.x_layout = any();
      if (is_convolution(node.layer)) do
          step.x_layout = any(), step.y_layout = any();
        while (!choose_algos(graph, node, DType::f64, "direct", *device, 0, cpu_registry(), step));
    }
    NetOptions options = with_input_gradient;
    options.poison = true;
    NetLab lab(graph, plan, *device, options);
    Iteration got{lab.forward(), lab.output(), {}};
    lab.net().backward();
    got.gradients = lab.gradients();
    expect_same(got, expected, 1e-10);
  }
}

// Some images at a time, with fewer in the last part.
TEST_P(SmallNets, PartsOfTheBatchGiveTheSame) {
  const std::int64_t batch = 5;
  const Iteration expected = iterate(GetParam(), {}, batch);
  for (const std::int64_t images : {1, 2, 5}) {
    SCOPED_TRACE(images);
    expect_same(iterate(GetParam(), {"im2col", Layout::nhwc, DType::f64, images}, batch), expected,
                1e-10);
    expect_same(iterate(GetParam(), {"winograd", Layout::nchw16c, DType::f32, images}, batch),
                expected, 1e-4);
  }
}

TEST_P(SmallNets, RunsRepeatToTheLastBit) {
  const Setting setting{"implicit_gemm", Layout::nchw16c, DType::f32};
  const Iteration first = iterate(GetParam(), setting), second = iterate(GetParam(), setting);
  EXPECT_EQ(first.loss, second.loss);
  EXPECT_EQ(first.output, second.output);
  EXPECT_EQ(first.gradients, second.gradients);
}

// Every buffer is NaN before its first write and after its last read, in two iterations.
TEST_P(SmallNets, NothingIsReadBeforeItIsWrittenOrAfterItsEnd) {
  for (const Layout layout : all_layouts)
    for (const char* algo : {"im2col", "winograd"}) {
      SCOPED_TRACE(std::string(algo) + " in " + std::string(to_string(layout)));
      Setting setting{algo, layout, DType::f32};
      const Iteration expected = iterate(GetParam(), setting);
      setting.options.poison = true;
      expect_same(iterate(GetParam(), setting), expected, 0);

      const auto device = make_cpu_device({2, ""});
      const Graph graph = GetParam().make(3);
      NetOptions options = setting.options;
      NetLab lab(graph, uniform_plan(graph, Mode::training, DType::f32, algo, layout, *device),
                 *device, options);
      for (int i = 0; i < 2; ++i) {
        EXPECT_TRUE(std::isfinite(lab.forward()));
        lab.net().backward();
        lab.net().update(SgdDesc{.rate = 0.01});
      }
      for (const auto& [name, gradient] : lab.gradients())
        for (const double g : gradient) ASSERT_TRUE(std::isfinite(g)) << name;
    }
}

// Inference folds batch norm into filters, drops dropout, and reuses memory earlier. The results
// must not change.
TEST_P(SmallNets, MemoryIsKnownBeforehand) {
  const auto device = make_cpu_device({1, ""});
  const Graph graph = GetParam().make(3);
  const SgdDesc rule{.rate = 0.1, .momentum = 0.9};
  for (const Mode mode : {Mode::training, Mode::inference}) {
    const NetPlan plan = uniform_plan(graph, mode, DType::f32, "im2col", Layout::nhwc, *device);
    const MemoryUse needed =
        Net::memory_needed(graph, plan, cpu_algos(), *device, with_input_gradient, rule);
    NetLab lab(graph, plan, *device, with_input_gradient);
    if (mode == Mode::inference) lab.net().freeze();
    lab.forward();
    if (mode == Mode::training) {
      lab.net().backward();
      lab.net().update(rule);
    }
    const MemoryUse used = lab.net().memory();
    EXPECT_EQ(needed.weights, used.weights);
    EXPECT_EQ(needed.activations, used.activations);
    EXPECT_EQ(needed.gradients, used.gradients);
    EXPECT_EQ(needed.workspace, used.workspace);
    EXPECT_EQ(needed.optimizer, used.optimizer);
    EXPECT_EQ(needed.arena, used.arena);
    EXPECT_EQ(needed.total, used.total);
    EXPECT_EQ(used.optimizer > 0, mode == Mode::training);
    for (std::size_t i = 0; i < lab.net().steps().size(); ++i) {
      const MemoryUse now = lab.net().memory_during(i, Phase::forward);
      EXPECT_GT(now.activations, 0u) << i;
      EXPECT_LE(now.activations + now.gradients + now.workspace,
                used.activations + used.gradients + used.workspace)
          << i;
      EXPECT_EQ(now.total, used.total) << i;
    }
  }
}

TEST_P(SmallNets, InferenceIsTheSameInEveryAlgorithmAndLayout) {
  const auto device = make_cpu_device({2, ""});
  const Graph graph = GetParam().make(3);
  const auto infer = [&](const char* algo, Layout layout, DType dtype, std::int64_t images,
                         bool poison) {
    NetOptions options;
    options.poison = poison;
    NetLab lab(graph, uniform_plan(graph, Mode::inference, dtype, algo, layout, *device, images),
               *device, options);
    lab.forward();
    const Values first = lab.output();
    lab.forward();
    EXPECT_EQ(lab.output(), first);
    return first;
  };
  const Values expected = infer("direct", Layout::nchw, DType::f64, 0, false);
  for (const Layout layout : all_layouts) {
    SCOPED_TRACE(to_string(layout));
    EXPECT_LE(relative_error(infer("im2col", layout, DType::f64, 2, true), expected), 1e-10);
    for (const char* algo : {"direct", "implicit_gemm", "winograd", "fft_tiled"})
      EXPECT_LE(relative_error(infer(algo, layout, DType::f32, 0, true), expected), 2e-5) << algo;
  }
}

}  // namespace
}  // namespace convlab::nets
