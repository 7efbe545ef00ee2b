#include "nets/steps.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "nets/zoo/zoo.h"

namespace convlab::nets {
namespace {

// Each step's node and its fused operations: b batch norm, + residual, the activation.
std::vector<std::string> described(const Graph& graph, Mode mode) {
  std::vector<std::string> lines;
  for (const Step& step : steps_of(graph, mode)) {
    std::string line = graph.nodes()[step.node].name;
    if (step.batch_norm) line += " b";
    if (step.residual) line += " +" + graph.nodes()[step.inputs.back()].name;
    if (step.activation) line += fmt::format(" {}", to_string(*step.activation));
    lines.push_back(line);
  }
  return lines;
}

bool has(const std::vector<std::string>& lines, const std::string& line) {
  return std::find(lines.begin(), lines.end(), line) != lines.end();
}

TEST(Steps, TrainingFusesBatchNormWithAdditionAndReLU) {
  const auto lines = described(resnet(18, 1), Mode::training);
  EXPECT_TRUE(has(lines, "conv1"));
  EXPECT_TRUE(has(lines, "bn1 relu"));
  EXPECT_TRUE(has(lines, "layer1.0.bn2 +maxpool relu"));
  // The projection's batch norm comes last, so it does the addition.
  EXPECT_TRUE(has(lines, "layer2.0.bn2"));
  EXPECT_TRUE(has(lines, "layer2.0.downsample.1 +layer2.0.bn2 relu"));
  EXPECT_FALSE(has(lines, "layer1.0.add"));
  EXPECT_EQ(lines.size(), 1u + 20 + 20 + 1 + 1 + 1);  // input, conv, bn, maxpool, avgpool, fc
}

TEST(Steps, InferenceFoldsBatchNormIntoConvolutions) {
  const auto lines = described(resnet(18, 1), Mode::inference);
  EXPECT_TRUE(has(lines, "conv1 b relu"));
  EXPECT_TRUE(has(lines, "layer1.0.conv2 b +maxpool relu"));
  EXPECT_TRUE(has(lines, "layer2.0.conv2 b"));
  EXPECT_TRUE(has(lines, "layer2.0.downsample.0 b +layer2.0.bn2 relu"));
  EXPECT_EQ(lines.size(), 1u + 20 + 1 + 1 + 1);
}

TEST(Steps, InferenceLeavesDropoutOut) {
  EXPECT_TRUE(has(described(alexnet(1), Mode::training), "classifier.0"));
  EXPECT_FALSE(has(described(alexnet(1), Mode::inference), "classifier.0"));
  EXPECT_TRUE(has(described(alexnet(1), Mode::inference), "features.0 relu"));
}

// As if it were not there: the addition behind it is fused.
TEST(Steps, InferenceFusesThroughStochasticDepth) {
  const auto training = described(efficientnet_b0(1), Mode::training),
             inference = described(efficientnet_b0(1), Mode::inference);
  EXPECT_TRUE(has(training, "features.2.1.stochastic_depth"));
  EXPECT_TRUE(has(training, "features.2.1.add"));
  EXPECT_TRUE(has(inference, "features.2.1.block.3.0 b +features.2.0.block.3.1"));
  EXPECT_FALSE(has(inference, "features.2.1.stochastic_depth"));
  EXPECT_FALSE(has(inference, "features.2.1.add"));
}

// Any activation in inference. In training what is not ReLU stays a step, and so does all behind a
// batch norm of its own.
TEST(Steps, InferenceFusesEveryActivation) {
  const auto silu = described(efficientnet_b0(1), Mode::inference),
             relu6 = described(mobilenet_v2(1), Mode::inference),
             hardswish = described(make_net("mobilenet_v3_large", 1), Mode::inference);
  EXPECT_TRUE(has(silu, "features.0.0 b silu"));
  EXPECT_TRUE(has(silu, "features.1.0.block.1.fc2 sigmoid"));
  EXPECT_TRUE(has(relu6, "features.1.conv.0.0 b relu6"));
  EXPECT_TRUE(has(hardswish, "features.0.0 b hardswish"));
  EXPECT_TRUE(has(hardswish, "features.4.block.2.fc2 hardsigmoid"));
  EXPECT_TRUE(has(described(mobilenet_v2(1), Mode::training), "features.0.2"));
  Graph graph("norm first");
  const NodeId x = graph.add("input", Input{{1, 4, 8, 8}}, {});
  const NodeId norm = graph.add("norm", BatchNorm{}, {x});
  const NodeId act = graph.add("silu", Activation{ActivationKind::silu}, {norm});
  const NodeId conv = graph.add("conv", Conv{.filters = 4}, {act});
  graph.add("gelu", Activation{ActivationKind::gelu}, {conv});
  EXPECT_EQ(described(graph, Mode::inference),
            (std::vector<std::string>{"input", "norm", "silu", "conv gelu"}));
  EXPECT_EQ(described(graph, Mode::training),
            (std::vector<std::string>{"input", "norm", "silu", "conv", "gelu"}));
}

TEST(Steps, DoNotFuseWhatSomethingElseReads) {
  Graph graph("branch");
  const NodeId x = graph.add("input", Input{{1, 4, 8, 8}}, {});
  const NodeId conv = graph.add("conv", Conv{.filters = 4}, {x});
  const NodeId relu = graph.add("relu", Activation{}, {conv});
  graph.add("add", Add{}, {conv, relu});
  EXPECT_EQ(described(graph, Mode::training),
            (std::vector<std::string>{"input", "conv", "relu", "add"}));
}

// For every net, every value is computed before it is read, and every node is run exactly once.
TEST(Steps, CanBeRunInOrder) {
  for (const std::string& name : net_names())
    for (const Mode mode : {Mode::training, Mode::inference}) {
      const Graph graph = make_net(name, 2);
      std::set<NodeId> there;
      for (const Step& step : steps_of(graph, mode)) {
        for (NodeId input : step.inputs) EXPECT_TRUE(there.count(input)) << name;
        EXPECT_TRUE(there.insert(step.output).second) << name;
        EXPECT_EQ(graph.nodes()[step.output].shape, graph.nodes()[step.node].shape) << name;
      }
      EXPECT_TRUE(there.count(graph.nodes().size() - 1)) << name;
    }
}

}  // namespace
}  // namespace convlab::nets
