#include "nets/graph.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "conv/error.h"
#include "nets/steps.h"
#include "nets/tensor.h"

namespace convlab::nets {
namespace {

// The shape that a layer gives for one input, or its error message if the input does not fit.
Shape shape_of(Shape x, Layer layer) {
  Graph net("net");
  return input(net, x).apply("layer", std::move(layer)).shape();
}
std::string refusal(Shape x, Layer layer) {
  try {
    shape_of(x, std::move(layer));
  } catch (const InputError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Graph, InfersShapes) {
  const Shape x{2, 8, 10, 7};
  EXPECT_EQ(shape_of(x, Conv{.filters = 5, .kernel = 3}), (Shape{2, 5, 8, 5}));
  EXPECT_EQ(shape_of(x, Conv{.filters = 6, .kernel = 3, .stride = 2, .pad = 1, .groups = 2}),
            (Shape{2, 6, 5, 4}));
  EXPECT_EQ(shape_of(x, Conv{.filters = 3, .kernel = {1, 5}, .stride = {2, 1}, .pad = {0, 1}}),
            (Shape{2, 3, 5, 5}));
  EXPECT_EQ(shape_of(x, Conv{.filters = 3, .kernel = {3, 2}, .dilation = {4, 5}}),
            (Shape{2, 3, 2, 2}));
  EXPECT_EQ(shape_of(x, ConvTranspose{.filters = 5, .kernel = 2, .stride = 2}),
            (Shape{2, 5, 20, 14}));
  EXPECT_EQ(shape_of(x, ConvTranspose{.filters = 6,
                                      .kernel = {3, 4},
                                      .stride = {2, 3},
                                      .pad = 1,
                                      .output_pad = {1, 2},
                                      .dilation = {2, 1},
                                      .groups = 2}),
            (Shape{2, 6, 22, 22}));
  // SAME with stride 2, and causal.
  EXPECT_EQ(shape_of(x, Conv{.filters = 6, .kernel = 3, .stride = 2, .pad_end = {{1, 0}}}),
            (Shape{2, 6, 5, 3}));
  EXPECT_EQ(shape_of(x, Conv{.filters = 6, .kernel = 3, .pad = {2, 1}, .pad_end = {{0, 1}}}),
            (Shape{2, 6, 10, 7}));
  EXPECT_EQ(shape_of(x, ConvTranspose{.filters = 6, .kernel = 3, .stride = 2, .pad_end = 1}),
            (Shape{2, 6, 20, 14}));
  EXPECT_EQ(shape_of(x, Pool{.kernel = {3, 2}, .stride = {2, 1}, .pad_end = {{1, 0}}}),
            (Shape{2, 8, 5, 6}));
  EXPECT_EQ(shape_of(x, Pool{.kernel = {1, 3}, .stride = {1, 2}, .pad = {0, 1}}),
            (Shape{2, 8, 10, 4}));
  EXPECT_EQ(shape_of(x, PixelShuffle{2}), (Shape{2, 2, 20, 14}));
  EXPECT_EQ(shape_of(x, Slice{3, 5}), (Shape{2, 5, 10, 7}));
  EXPECT_EQ(shape_of(x, Resize{ResizeKind::bilinear, 3, 20}), (Shape{2, 8, 3, 20}));
  EXPECT_EQ(shape_of(x, Linear{11}), (Shape{2, 11, 1, 1}));
  EXPECT_EQ(shape_of(x, GlobalAvgPool{}), (Shape{2, 8, 1, 1}));
  EXPECT_EQ(shape_of(x, PadChannels{12}), (Shape{2, 12, 10, 7}));
  for (const Layer& layer :
       {Layer(BatchNorm{}), Layer(LocalResponseNorm{}), Layer(Activation{}), Layer(Dropout{}),
        Layer(LayerNorm{}), Layer(ChannelScale{}), Layer(ChannelShuffle{4}),
        Layer(LayerActivation{}), Layer(PRelu{}), Layer(GroupNorm{4})})
    EXPECT_EQ(shape_of(x, layer), x);
}

TEST(Graph, InfersShapesWithDepth) {
  const Shape x{2, 8, 10, 7, 5};  // 5 slices
  const DepthWindow depth{.kernel = 3, .stride = 2, .pad = 1};
  EXPECT_EQ(shape_of(x, Conv{.filters = 5, .kernel = 3, .pad = {0, 1}, .depth = depth}),
            (Shape{2, 5, 8, 7, 3}));
  EXPECT_EQ(shape_of(x, Conv{.filters = 5, .depth = DepthWindow{.kernel = 2, .dilation = 3}}),
            (Shape{2, 5, 10, 7, 2}));
  EXPECT_EQ(shape_of(x, Conv{.filters = 5, .kernel = 3}), (Shape{2, 5, 8, 5, 5}));
  EXPECT_EQ(shape_of(x, ConvTranspose{.filters = 3, .kernel = 2, .stride = 2}),
            (Shape{2, 3, 20, 14, 5}));
  EXPECT_EQ(
      shape_of(
          x,
          ConvTranspose{.filters = 3,
                        .kernel = 2,
                        .stride = 2,
                        .depth = DepthWindow{.kernel = 4, .stride = 3, .pad = 1, .output_pad = 2}}),
      (Shape{2, 3, 20, 14, 16}));
  EXPECT_EQ(shape_of(x, Pool{.depth = {.kernel = 2, .stride = 2}}), (Shape{2, 8, 5, 3, 2}));
  EXPECT_EQ(shape_of(x, Pool{.ceil_mode = true, .depth = {.kernel = 2, .stride = 2}}),
            (Shape{2, 8, 5, 4, 3}));
  EXPECT_EQ(shape_of(x, Pool{}), (Shape{2, 8, 5, 3, 5}));
  EXPECT_EQ(shape_of(x, Slice{3, 5}), (Shape{2, 5, 10, 7, 5}));
  EXPECT_EQ(shape_of(x, PadChannels{12}), (Shape{2, 12, 10, 7, 5}));
  EXPECT_EQ(shape_of(x, Linear{11}), (Shape{2, 11, 1, 1}));
  EXPECT_EQ(shape_of(x, GlobalAvgPool{}), (Shape{2, 8, 1, 1}));
  for (const Layer& layer :
       {Layer(BatchNorm{}), Layer(LocalResponseNorm{}), Layer(Activation{}), Layer(Dropout{}),
        Layer(LayerNorm{}), Layer(ChannelScale{}), Layer(ChannelShuffle{4}),
        Layer(LayerActivation{}), Layer(PRelu{}), Layer(GroupNorm{4})})
    EXPECT_EQ(shape_of(x, layer), x);

  EXPECT_EQ(
      shape_of(x, Conv{.filters = 5, .depth = DepthWindow{.kernel = 3, .pad = 2, .pad_end = 0}}),
      (Shape{2, 5, 10, 7, 5}));
  EXPECT_EQ(
      shape_of(x, ConvTranspose{.filters = 3,
                                .depth = DepthWindow{.kernel = 3, .stride = 2, .pad_end = 1}}),
      (Shape{2, 3, 10, 7, 10}));
  EXPECT_EQ(shape_of(x, Pool{.depth = {.kernel = 2, .stride = 1, .pad_end = 1}}),
            (Shape{2, 8, 5, 3, 5}));

  EXPECT_EQ(refusal(x, Resize{ResizeKind::bilinear, 3, 20}),
            "net net, layer layer: resizing needs depth 1, has 5");
  EXPECT_EQ(refusal(x, Recurrent{}),
            "net net, layer layer: a recurrent layer needs depth 1, has 5");
  EXPECT_EQ(refusal(x, Conv{.kernel = 3, .pad = -1, .depth = depth}),
            "net net, layer layer: window 3x3x3 with stride 2x1x1, padding 1x-1x-1 and dilation "
            "1x1x1 makes no sense");
  EXPECT_EQ(refusal(x, Pool{.depth = {.kernel = 6}}),
            "net net, layer layer: window 6 does not fit into 5 with padding 0");
  EXPECT_NE(refusal(x, Pool{.depth = {.kernel = 2, .dilation = 2}}), "accepted");
  EXPECT_NE(refusal(x, Conv{.depth = DepthWindow{.stride = 2, .output_pad = 1}}), "accepted");
  EXPECT_NE(refusal(x, Conv{.depth = DepthWindow{.kernel = 6}}), "accepted");
  EXPECT_NE(refusal(x, Conv{.matrix = true, .depth = DepthWindow{}}), "accepted");
  EXPECT_NE(
      refusal(x, ConvTranspose{.stride = 2, .depth = DepthWindow{.stride = 2, .output_pad = 2}}),
      "accepted");
  EXPECT_EQ(refusal({std::int64_t{1} << 40, 1, 1, 1, std::int64_t{1} << 30}, Dropout{}),
            "net net, layer input: its output would be 1099511627776x1x1073741824x1x1");

  Graph net("net");
  const Tensor volume = input(net, x);
  const Tensor half = volume.max_pool_3d("half", 2, 2);
  EXPECT_EQ(half.shape(), (Shape{2, 8, 5, 3, 2}));
  EXPECT_EQ(concat("both", {volume, volume.conv("a", {.filters = 4})}).shape(),
            (Shape{2, 12, 10, 7, 5}));
  const Tensor thin = volume.conv("thin", {.filters = 8, .depth = DepthWindow{.kernel = 3}});
  EXPECT_THROW(concat("depths", {volume, thin}), InputError);
  EXPECT_THROW(add("sum", volume, thin), InputError);
  EXPECT_EQ(gated("gated", volume, volume.global_avg_pool("gate")).shape(), x);
}

TEST(Graph, RoundsPoolingAsPyTorchDoes) {
  auto pooled = [](std::int64_t size, std::int64_t kernel, std::int64_t stride, std::int64_t pad,
                   bool ceil_mode) {
    return shape_of({1, 1, size, size}, Pool{Pool::Kind::max, kernel, stride, pad, ceil_mode}).h;
  };
  EXPECT_EQ(pooled(112, 3, 2, 0, false), 55);
  EXPECT_EQ(pooled(112, 3, 2, 0, true), 56);
  EXPECT_EQ(pooled(112, 3, 2, 1, false), 56);
  EXPECT_EQ(pooled(14, 3, 1, 1, true), 14);
  EXPECT_EQ(pooled(4, 2, 2, 0, true), 2);
  EXPECT_EQ(pooled(5, 2, 2, 0, true), 3);
  // A third window would begin in the padding to the right: positions -1, 1, 3.
  EXPECT_EQ(pooled(3, 2, 2, 1, true), 2);
  EXPECT_EQ(pooled(3, 2, 2, 1, false), 2);
  // Only the second begins beyond the image.
  EXPECT_EQ(pooled(2, 1, 3, 0, true), 1);
}

TEST(Graph, JoinsBranches) {
  Graph net("net");
  const Tensor x = input(net, {2, 3, 8, 8});
  const Tensor a = x.conv("a", {.filters = 4}), b = x.conv("b", {.filters = 4});
  EXPECT_EQ(add("sum", a, b).shape(), (Shape{2, 4, 8, 8}));
  EXPECT_EQ(concat("all", {x, a, b}).shape(), (Shape{2, 11, 8, 8}));
  EXPECT_EQ(net.nodes()[4].inputs, (std::vector<NodeId>{0, 1, 2})) << net.nodes()[4].name;
  EXPECT_EQ(gated("gated", a, b.global_avg_pool("gate")).shape(), a.shape());
  EXPECT_THROW(add("channels", x, a), InputError);
  const Tensor small = x.max_pool("small", 2, 2);
  EXPECT_THROW(concat("sizes", {a, small}), InputError);
  EXPECT_THROW(concat("alone", {a}), InputError);
  // The refused layer left no trace.
  EXPECT_EQ(net.nodes().size(), 8u);
}

TEST(Graph, SaysWhichLayerDoesNotFit) {
  const Shape x{1, 6, 5, 5};
  EXPECT_EQ(refusal(x, Conv{.kernel = 7}),
            "net net, layer layer: impossible problem: oh is 0: it takes 1 to 2^60");
  EXPECT_EQ(refusal(x, Conv{.kernel = 7, .stride = 4}), refusal(x, Conv{.kernel = 7}));
  EXPECT_EQ(refusal(x, Conv{.filters = 4, .groups = 4}),
            "net net, layer layer: impossible problem: ic 6 is not a multiple of g 4");
  EXPECT_NE(refusal(x, Conv{.stride = 0}).find("sh is 0"), std::string::npos);
  EXPECT_EQ(refusal(x, Conv{.filters = 0}),
            "net net, layer layer: impossible problem: oc is 0: it takes 1 to 2^60");
  EXPECT_EQ(refusal(x, Pool{.kernel = 6}),
            "net net, layer layer: window 6 does not fit into 5 with padding 0");
  EXPECT_EQ(refusal(x, Pool{.kernel = 2, .pad = 2}),
            "net net, layer layer: window 2 with stride 2 and padding 2 makes no sense");
  EXPECT_EQ(refusal(x, Pool{.kernel = 2, .pad_end = 2}),
            "net net, layer layer: window 2 with stride 2 and padding 0 and 2 makes no sense");
  EXPECT_EQ(refusal(x, LayerActivation{LayerActivation::Kind::clip, 1, 0}),
            "net net, layer layer: clip: 1 is not at most 0");
  EXPECT_EQ(refusal(x, PixelShuffle{2}),
            "net net, layer layer: cannot spread 6 channels over 2x2 pixels");
  EXPECT_NE(refusal(x, GroupNorm{.groups = 4}).find("6 channels do not divide into 4 groups"),
            std::string::npos);
  EXPECT_EQ(refusal(x, PadChannels{5}), "net net, layer layer: cannot pad 6 channels to 5");
  EXPECT_EQ(refusal(x, Linear{0}), "net net, layer layer: its output would be 1x0x1x1");
  EXPECT_EQ(refusal(x, Input{x}), "net net, layer layer: takes no input, has 1");
  EXPECT_EQ(refusal(x, Add{}), "net net, layer layer: takes two or more inputs, has 1");
  EXPECT_EQ(refusal({std::int64_t{1} << 60, 1, 1, 1}, Dropout{}),
            "net net, layer input: its output would be 1152921504606846976x1x1x1");

  Graph net("net");
  input(net, x);
  net.add("pool", GlobalAvgPool{}, {0});
  try {
    net.add("gate", Gate{}, {1, 0});
    ADD_FAILURE() << "accepted";
  } catch (const InputError& error) {
    EXPECT_STREQ(error.what(), "net net, layer gate: the gate of 1x6x1x1 is 1x6x1x1, not 1x6x5x5");
  }
  EXPECT_THROW(net.add("gate", Gate{}, {0}), InputError);
  EXPECT_THROW(net.add("input", Dropout{}, {0}), InputError);
  EXPECT_THROW(net.add("orphan", Dropout{}, {}), InputError);
  EXPECT_THROW(net.add("future", Dropout{}, {2}), InputError);
}

TEST(Graph, RefusesNumbersThatMakeNoSense) {
  const Shape x{2, 8, 10, 7};
  const double nan = std::nan(""), infinity = std::numeric_limits<double>::infinity();
  const std::int64_t huge = std::numeric_limits<std::int64_t>::max();
  for (const Layer& layer : {Layer(BatchNorm{.epsilon = nan}),
                             Layer(BatchNorm{.epsilon = -1}),
                             Layer(Dropout{.p = 1}),
                             Layer(Dropout{.p = nan}),
                             Layer(LocalResponseNorm{.size = 0}),
                             Layer(LocalResponseNorm{.alpha = nan}),
                             Layer(LocalResponseNorm{.beta = infinity}),
                             Layer(LocalResponseNorm{.k = -1}),
                             Layer(Conv{.filters = 1, .kernel = huge}),
                             Layer(Conv{.filters = 1, .pad = huge}),
                             Layer(Conv{.filters = 1, .stride = huge}),
                             Layer(Conv{.filters = 1, .pad = -1}),
                             Layer(Conv{.filters = 1, .dilation = 0}),
                             Layer(Conv{.filters = 1, .kernel = 2, .dilation = {1, huge}}),
                             Layer(Conv{.filters = 1, .pad = {0, -1}}),
                             Layer(BatchNorm{.momentum = 2}),
                             Layer(BatchNorm{.momentum = nan}),
                             Layer(Pool{.kernel = huge, .pad = huge}),
                             Layer(Pool{.pad_end = huge}),
                             Layer(Conv{.filters = 1, .pad_end = huge}),
                             Layer(Conv{.filters = 1, .pad_end = -1}),
                             Layer(ConvTranspose{.filters = 1, .pad_end = -1}),
                             Layer(LayerActivation{LayerActivation::Kind::elu, nan}),
                             Layer(PRelu{.initial = nan}),
                             Layer(GroupNorm{.groups = 0}),
                             Layer(GroupNorm{.epsilon = nan}),
                             Layer(PixelShuffle{0}),
                             Layer(PixelShuffle{huge}),
                             Layer(Linear{.outputs = huge}),
                             Layer(ConvTranspose{.filters = 1, .stride = 0}),
                             Layer(ConvTranspose{.filters = 1, .kernel = huge}),
                             Layer(ConvTranspose{.filters = 1, .stride = 2, .output_pad = 2}),
                             Layer(ConvTranspose{.filters = 1, .kernel = 3, .pad = 12}),
                             Layer(ConvTranspose{.filters = 3, .groups = 3}),
                             Layer(Conv{.filters = 1, .kernel = 3, .matrix = true}),
                             Layer(LayerNorm{.epsilon = -1}),
                             Layer(ChannelScale{.initial = nan}),
                             Layer(Slice{.first = 4, .channels = 5}),
                             Layer(Slice{.first = -1}),
                             Layer(Slice{.first = 1, .channels = huge}),
                             Layer(ChannelShuffle{.groups = 3}),
                             Layer(ChannelShuffle{.groups = 0}),
                             Layer(Resize{.h = 0}),
                             Layer(Resize{.h = huge, .w = huge}),
                             Layer(PadChannels{.channels = huge})})
    EXPECT_NE(refusal(x, layer), "accepted") << layer.index();
  EXPECT_NE(refusal({0, 1, 1, 1}, Activation{}), "accepted");
}

TEST(Graph, HasItsScoresFromTheLastLayerWithAFilter) {
  Graph net("net");
  const Tensor x = input(net, {1, 3, 8, 8});
  EXPECT_THROW((void)net.head(), InputError);
  const Tensor a = x.conv("a", {.filters = 4});
  const Tensor b = a.relu("relu").conv("b", {.filters = 4});
  b.batch_norm("norm").global_avg_pool("pool");
  EXPECT_EQ(net.head(), b.id());
}

TEST(Graph, RefusesNodesThatAreNotItsOwn) {
  Graph net("net"), other("other");
  const Tensor x = input(net, {1, 3, 8, 8}), y = input(other, {1, 3, 8, 8});
  EXPECT_THROW(add("sum", x, y), InputError);
  EXPECT_THROW(concat("both", {x, y}), InputError);
  EXPECT_THROW(concat("none", {}), InputError);
  EXPECT_THROW((void)Tensor(net, 7).shape(), InputError);
  EXPECT_THROW(Tensor(net, 7).relu("relu"), InputError);
  EXPECT_THROW((void)net.conv_problem(net.nodes()[0]), InputError);
  const Node foreign{"foreign", Conv{.filters = 1}, {9}, {}};
  EXPECT_THROW((void)net.conv_problem(foreign), InputError);
  EXPECT_THROW((void)net.parameters(foreign), InputError);
  EXPECT_THROW((void)Graph("empty").batch(), InputError);
  Step beyond;
  beyond.inputs = {5};
  EXPECT_THROW(readers_of(net, {beyond}), InputError);
}

TEST(Graph, CountsParametersAndMultiplyAdds) {
  Graph net("net");
  input(net, {4, 6, 5, 5})
      .conv("grouped", {.filters = 8, .kernel = 3, .stride = 2, .pad = 1, .groups = 2})
      .batch_norm("norm")
      .relu("relu")
      .conv("unbiased", {.filters = 3, .bias = false})
      .linear("fc", 10);
  auto parameters = [&](NodeId id) { return net.parameters(net.nodes()[id]); };
  auto multiply_adds = [&](NodeId id) { return net.multiply_adds(net.nodes()[id]); };
  EXPECT_EQ(parameters(1), 8 * 3 * 9 + 8);
  EXPECT_EQ(multiply_adds(1), 9 * 8 * 3 * 9);  // 3x3 outputs, for any batch
  EXPECT_EQ(parameters(2), 16);
  EXPECT_EQ(multiply_adds(2), 0);
  EXPECT_EQ(parameters(3), 0);
  EXPECT_EQ(parameters(4), 24);
  EXPECT_EQ(parameters(5), 27 * 10 + 10);
  EXPECT_EQ(multiply_adds(5), 270);
  EXPECT_EQ(net.parameters(), 224 + 16 + 24 + 280);
  EXPECT_EQ(net.multiply_adds(), 1944 + 216 + 270);
}

TEST(Graph, CountsAndNamesFiltersWithDepth) {
  Graph net("net");
  input(net, {4, 6, 5, 5, 4})
      .conv("grouped", {.filters = 8,
                        .kernel = 3,
                        .stride = 2,
                        .pad = 1,
                        .groups = 2,
                        .depth = DepthWindow{.kernel = 2}})
      .conv("pointwise", {.filters = 3, .bias = false, .depth = DepthWindow{}})
      .conv("slices", {.filters = 5, .bias = false})
      .conv_transpose(
          "up",
          {.filters = 2, .kernel = 2, .stride = 2, .depth = DepthWindow{.kernel = 4, .stride = 4}})
      .linear("fc", 10);
  const auto node = [&](NodeId id) { return net.nodes()[id]; };
  using Sizes = std::vector<std::int64_t>;
  EXPECT_EQ(net.filter_shape(node(1)), (Sizes{8, 3, 2, 3, 3}));
  EXPECT_EQ(net.filter_shape(node(2)), (Sizes{3, 8, 1, 1, 1}));
  EXPECT_EQ(net.filter_shape(node(3)), (Sizes{5, 3, 1, 1}));
  EXPECT_EQ(net.filter_shape(node(4)), (Sizes{5, 2, 4, 2, 2}));
  EXPECT_EQ(net.parameters(node(1)), 8 * 3 * 18 + 8);
  EXPECT_EQ(net.multiply_adds(node(1)), 8 * 3 * 18 * 27);  // 3x3x3 outputs
  EXPECT_EQ(net.multiply_adds(node(3)), 15 * 27);
  EXPECT_EQ(net.multiply_adds(node(4)), 5 * 2 * 16 * 27);
  EXPECT_EQ(net.multiply_adds(node(5)), 2 * 12 * 36 * 10);
  EXPECT_EQ(to_text(net.conv_problem(node(1))),
            "g2mb4ic6id4ih5iw5oc8od3oh3ow3kd2kh3kw3sd1sh2sw2pd0ph1pw1");
}

TEST(ConvLayers, ListConvolutionsInOrderAndMarkThoseThatNeedNoDx) {
  Graph net("net");
  const Tensor x = input(net, {4, 6, 8, 8}).relu("relu");
  const Tensor a = x.conv("a", {.filters = 6, .kernel = 3, .pad = 1});
  const Tensor b = x.conv("b", {.filters = 6, .kernel = 3, .pad = 1});
  const Tensor c = b.conv("c", {.filters = 6, .kernel = 3, .pad = 1});
  add("sum", a, c).conv("d", {.filters = 6, .kernel = 3, .stride = 2, .pad = 1});

  const std::vector<ConvLayer> layers = conv_layers(net);
  ASSERT_EQ(layers.size(), 4u);
  const std::string same = "mb4ic6ih8oc6oh8kh3ph1";
  EXPECT_EQ(to_text(layers[0].layer), same + "n\"a\"");
  EXPECT_EQ(to_text(layers[1].layer), same + "n\"b\"");
  EXPECT_EQ(to_text(layers[2].layer), same + "n\"c\"");
  EXPECT_EQ(to_text(layers[3].layer), "mb4ic6ih8oc6oh4kh3sh2ph1n\"d\"");
  EXPECT_TRUE(layers[0].first && layers[1].first);
  EXPECT_FALSE(layers[2].first || layers[3].first);

  const std::vector<ConvLayer> merged = merge_equal(layers);
  ASSERT_EQ(merged.size(), 3u);
  EXPECT_EQ(to_text(merged[0].layer), same + "n\"a*2\"");
  EXPECT_EQ(to_text(merged[1].layer), same + "n\"c\"");
  EXPECT_TRUE(merged[0].first);
  EXPECT_FALSE(merged[1].first);
}

TEST(ConvLayers, BatchNormOnTheInputNeedsDx) {
  Graph net("net");
  input(net, {1, 3, 8, 8}).batch_norm("norm").conv("conv", {.filters = 4});
  EXPECT_FALSE(conv_layers(net).at(0).first);
}

TEST(RecurrentLayers, AreListedInOrderAndMerged) {
  Graph net("net");
  const Recurrent layer{.cell = RecurrentCell::gru, .hidden = 6, .every_step = true};
  input(net, {4, 3, 5, 2})
      .conv("conv", {.filters = 3, .kernel = 1})
      .recurrent("a", layer)
      .recurrent("b", layer)
      .recurrent("c", layer);
  std::vector<std::string> names;
  for (const NamedRecurrentProblem& found : recurrent_layers(net)) names.push_back(to_text(found));
  const std::string same = "gru:l1t5mb4sic6slc6dhc6dic6";
  EXPECT_EQ(names, (std::vector<std::string>{same + "n\"a\"", same + "n\"b\"", same + "n\"c\""}));
  const auto merged = merge_equal(recurrent_layers(net));
  ASSERT_EQ(merged.size(), 1u);
  EXPECT_EQ(to_text(merged[0]), same + "n\"a*3\"");
}

}  // namespace
}  // namespace convlab::nets
