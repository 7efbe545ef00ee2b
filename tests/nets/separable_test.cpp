// Depthwise separable convolutions as one step: which steps are joined, and that nets compute the
// same with them.
#include "nets/separable.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "conv/error.h"
#include "conv/refusals.h"
#include "kernels_cpu/cpu.h"
#include "nets/plan/choose.h"
#include "nets/tensor.h"
#include "nets/zoo/zoo.h"
#include "tests/nets/net_lab.h"

namespace convlab::nets {
namespace {

// With all that may be behind each of the two convolutions, and what keeps them apart.
Graph separable_net(std::int64_t batch) {
  Graph net("separable");
  const auto depthwise = [](Tensor x, const std::string& name, std::int64_t stride, bool bias) {
    const std::int64_t channels = x.shape().c;
    return x.conv(name, {.filters = channels,
                         .kernel = 3,
                         .stride = stride,
                         .pad = 1,
                         .groups = channels,
                         .bias = bias});
  };
  const Tensor stem = input(net, {batch, 3, 13, 10}).conv("stem", {.filters = 20, .kernel = 3});
  // Batch norms, ReLU6 and a residual, as in MobileNetV2.
  Tensor x = depthwise(stem, "residual.dw", 1, false)
                 .batch_norm("residual.dw.bn")
                 .activation("residual.relu6", ActivationKind::relu6)
                 .conv("residual.pw", {.filters = 20, .bias = false})
                 .batch_norm("residual.pw.bn");
  x = add("residual.add", stem, x);
  // Biases and ReLUs, the first of which is a part of the convolution's step.
  x = depthwise(x, "biased.dw", 2, true)
          .activation("biased.relu", ActivationKind::relu)
          .conv("biased.pw", {.filters = 33})
          .activation("biased.relu2", ActivationKind::relu);
  x = depthwise(x, "plain.dw", 1, false).conv("plain.pw", {.filters = 17, .bias = false});
  x = depthwise(x, "hardswish.dw", 1, true)
          .activation("hardswish", ActivationKind::hardswish)
          .conv("hardswish.pw", {.filters = 24});
  // Two readers, an activation that is not 0 at 0, and a filter that is no pointwise one.
  const Tensor twice = depthwise(x, "twice.dw", 1, true);
  x = add("twice.add", twice.conv("twice.pw", {.filters = 24}), twice);
  x = depthwise(x, "sigmoid.dw", 1, true)
          .activation("sigmoid", ActivationKind::sigmoid)
          .conv("sigmoid.pw", {.filters = 24});
  x = depthwise(x, "wide.dw", 1, true).conv("wide", {.filters = 24, .kernel = 3, .pad = 1});
  x.global_avg_pool("pool").linear("fc", 4);
  return net;
}

std::vector<std::string> joined_layers(const NetPlan& plan) {
  std::vector<std::string> names;
  for (const StepPlan& step : plan.steps)
    if (step.passes[0] && step.passes[0]->algo == separable_algo) names.push_back(step.layer);
  return names;
}

using Names = std::vector<std::string>;

// Without a matrix unit, which may make two steps faster. No algorithm but those that a joined step
// is made of is admitted, so that it is the fastest wherever it is possible.
class SeparableNet : public testing::Test {
 protected:
  SeparableNet() {
    if (const char* const before = std::getenv("CONVLAB_AMX")) before_ = before;
    setenv("CONVLAB_AMX", "off", 1);
  }
  ~SeparableNet() override {
    before_ ? setenv("CONVLAB_AMX", before_->c_str(), 1) : unsetenv("CONVLAB_AMX");
  }

  static ChooseOptions options() {
    return {.mode = Mode::inference,
            .workspace_max = std::int64_t{1} << 30,
            .algos = {"depthwise", "implicit_gemm"}};
  }
  static NetPlan plan_for(const Graph& graph, Device& device,
                          const ChooseOptions& options = SeparableNet::options()) {
    return choose_plan(graph, options, cpu_algos(), device, nullptr).plan;
  }

 private:
  std::optional<std::string> before_;
};

TEST(SeparableSteps, AreThoseThatNothingElseReads) {
  const Graph net = separable_net(1);
  Names names;
  for (const SeparableSteps& s : separable_steps(net, steps_of(net, Mode::inference)))
    names.push_back(net.nodes()[s.joined.node].name);
  EXPECT_EQ(names, (Names{"residual.pw", "biased.pw", "plain.pw", "hardswish.pw", "sigmoid.pw"}));
}

TEST_F(SeparableNet, JoinsAllOfMobileNetV2) {
  const Graph net = make_net("mobilenet_v2", 1);
  const auto device = make_cpu_device();
  const std::size_t steps = steps_of(net, Mode::inference).size();
  EXPECT_EQ(separable_steps(net, steps_of(net, Mode::inference)).size(), 17u);
  const NetPlan plan = plan_for(net, *device);
  EXPECT_EQ(joined_layers(plan).size(), 17u);
  // Each takes in a convolution with its activation.
  EXPECT_EQ(plan.steps.size() + 17, steps);
  EXPECT_EQ(plan.steps.size(), steps_of(net, plan).size());
  EXPECT_EQ(plan_from_json(to_json(plan), "plan"), plan);
  require_plan_fits(plan, net, device->info());
}

TEST_F(SeparableNet, JoinsForInferenceInF32ByAdmittedAlgorithms) {
  const Graph net = separable_net(1);
  const auto device = make_cpu_device();
  EXPECT_EQ(joined_layers(plan_for(net, *device)),
            (Names{"residual.pw", "biased.pw", "plain.pw", "hardswish.pw"}));
  ChooseOptions f64 = options(), training = options(), blocked;
  f64.dtype = DType::f64;
  EXPECT_EQ(joined_layers(plan_for(net, *device, f64)), Names{});
  training.mode = Mode::training;
  EXPECT_EQ(joined_layers(plan_for(net, *device, training)), Names{});
  blocked.mode = Mode::inference;
  blocked.layout = blocked_layout(device->info());
  for (const char* name : {"depthwise", "implicit_gemm"}) {
    blocked.exclude = {name};
    EXPECT_EQ(joined_layers(plan_for(net, *device, blocked)), Names{}) << name;
  }
}

TEST_F(SeparableNet, ComputesTheSame) {
  const Graph graph = separable_net(3);
  const auto infer = [&](const NetPlan& plan, Device& device, bool poison, bool freeze) {
    NetOptions options;
    options.poison = poison;
    NetLab lab(graph, plan, device, options);
    if (freeze) lab.net().freeze();
    lab.forward();
    const Values first = lab.output();
    lab.forward();
    EXPECT_EQ(lab.output(), first);
    return first;
  };
  for (const std::string& isa : supported_isas()) {
    const auto device = make_cpu_device({2, isa});
    const Values expected =
        infer(uniform_plan(graph, Mode::inference, DType::f64, "direct", Layout::nchw, *device),
              *device, false, false);
    for (const Layout layout : {Layout::nhwc, blocked_layout(device->info())})
      for (const bool poison : {false, true}) {
        ChooseOptions here = options();
        here.layout = layout;
        if (layout == Layout::nhwc) here.algos.emplace_back("direct");
        const NetPlan plan = plan_for(graph, *device, here);
        EXPECT_EQ(joined_layers(plan).size(), 4u) << isa << " " << to_string(layout);
        EXPECT_LE(relative_error(infer(plan, *device, poison, !poison), expected), 2e-5)
            << isa << " " << to_string(layout);
      }
  }
}

TEST_F(SeparableNet, RefusesAPlanThatDoesNotFit) {
  const auto device = make_cpu_device({2, ""});
  const Graph graph = separable_net(3);
  NetPlan plan = plan_for(graph, *device);
  const auto joined = std::find_if(plan.steps.begin(), plan.steps.end(),
                                   [](const StepPlan& s) { return s.layer == "plain.pw"; });
  ASSERT_NE(joined, plan.steps.end());
  const StepPlan fits = *joined;
  PassPlan& pass = *joined->passes[std::size_t(Pass::forward)];
  const auto expect_refused = [&] {
    EXPECT_THROW(Net(graph, plan, cpu_algos(), *device), InputError);
    *joined = fits;
    Net(graph, plan, cpu_algos(), *device);
  };
  joined->x_layout = Layout::nchw;
  expect_refused();
  pass.config = Config::parse("rows=4");
  expect_refused();
  pass.images = 1;
  expect_refused();
  pass.packs_each_run = true;
  expect_refused();
}

}  // namespace
}  // namespace convlab::nets
