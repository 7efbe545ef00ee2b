#include "nets/zoo/zoo.h"

#include <gtest/gtest.h>

#include <set>

#include "conv/error.h"

namespace convlab::nets {
namespace {

struct Counts {
  std::string name;
  std::int64_t parameters, multiply_adds;
  std::size_t convolutions;
};
void PrintTo(const Counts& c, std::ostream* out) { *out << c.name; }

class ZooCounts : public testing::TestWithParam<Counts> {};

TEST_P(ZooCounts, AreExact) {
  const Counts& expected = GetParam();
  const Graph net = make_net(expected.name, 1);
  EXPECT_EQ(net.name(), expected.name);
  EXPECT_EQ(net.parameters(), expected.parameters);
  EXPECT_EQ(net.multiply_adds(), expected.multiply_adds);
  EXPECT_EQ(conv_layers(net).size(), expected.convolutions);
}

// Parameters and multiply-adds of torchvision's models if it has them, else of the papers' nets.
INSTANTIATE_TEST_SUITE_P(Published, ZooCounts,
                         testing::Values(Counts{"alexnet", 61'100'840, 714'188'480, 5},
                                         Counts{"overfeat", 145'920'872, 2'801'403'904, 5},
                                         Counts{"vgg11", 132'863'336, 7'609'090'048, 8},
                                         Counts{"vgg13", 133'047'848, 11'308'466'176, 10},
                                         Counts{"vgg16", 138'357'544, 15'470'264'320, 13},
                                         Counts{"vgg19", 143'667'240, 19'632'062'464, 16},
                                         Counts{"vgg11_bn", 132'868'840, 7'609'090'048, 8},
                                         Counts{"vgg13_bn", 133'053'736, 11'308'466'176, 10},
                                         Counts{"vgg16_bn", 138'365'992, 15'470'264'320, 13},
                                         Counts{"vgg19_bn", 143'678'248, 19'632'062'464, 16},
                                         Counts{"googlenet", 6'624'904, 1'498'376'192, 57},
                                         Counts{"resnet18", 11'689'512, 1'814'073'344, 20},
                                         Counts{"resnet34", 21'797'672, 3'663'761'408, 36},
                                         Counts{"resnet50", 25'557'032, 4'089'184'256, 53},
                                         Counts{"resnet101", 44'549'160, 7'801'405'440, 104},
                                         Counts{"resnet152", 60'192'808, 11'513'626'624, 155},
                                         Counts{"resnext50_32x4d", 25'028'904, 4'230'479'872, 53},
                                         Counts{"squeezenet1_1", 1'235'496, 349'151'936, 26},
                                         Counts{"mobilenet_v2", 3'504'872, 300'774'272, 52},
                                         Counts{"mobilenet_v3_large", 5'483'032, 216'589'760, 62},
                                         Counts{"densenet121", 7'978'856, 2'834'161'664, 120},
                                         Counts{"efficientnet_b0", 5'288'548, 385'814'752, 81},
                                         Counts{"regnet_y_400mf", 4'344'144, 401'842'848, 85},
                                         Counts{"inception_v3", 23'834'568, 5'713'216'096, 94},
                                         Counts{"shufflenet_v2_x1_0", 2'278'604, 144'907'992, 56},
                                         Counts{"convnext_tiny", 28'589'128, 4'455'531'264, 58},
                                         Counts{"deeplabv3_resnet50", 39'638'869, 31'310'548'992,
                                                61},
                                         Counts{"unet", 31'037'698, 48'171'581'440, 23},
                                         Counts{"r3d_18", 33'371'472, 40'696'553'472, 20},
                                         Counts{"unet3d", 19'072'291, 244'704'083'968, 18}),
                         [](const auto& info) { return info.param.name; });

TEST(Zoo, ParametersOfThePapersNets) {
  EXPECT_EQ(make_net("alexnet2012", 1).parameters(), 60'965'224);
  EXPECT_EQ(make_net("googlenet2014", 1).parameters(), 6'998'552);
  EXPECT_EQ(make_net("lenet", 1).parameters(), 61'706);
  EXPECT_EQ(make_net("mlp:20-256x5-1", 1).parameters(), 268'801);
  EXPECT_EQ(make_net("rnn:28-128x2-10:lstm", 1).parameters(), 214'282);
  // The paper's 19,069,955, and a number more for each filter before a batch norm.
  EXPECT_EQ(make_net("unet3d", 1).parameters(), 19'069'955 + 2'336);
  // The paper says 0.27M and 0.85M.
  EXPECT_EQ(make_net("resnet20", 1).parameters(), 269'722);
  EXPECT_EQ(make_net("resnet56", 1).parameters(), 853'018);
}

const Node& node(const Graph& net, std::string_view name) {
  for (const Node& n : net.nodes())
    if (n.name == name) return n;
  throw InputError("no layer " + std::string(name));
}

std::string problem_text(const Graph& net, std::string_view name) {
  return to_text(net.conv_problem(node(net, name)));
}

TEST(Zoo, HasTheLayersOfItsModels) {
  const Graph alexnet = make_net("alexnet", 16), alexnet2012 = make_net("alexnet2012", 1);
  EXPECT_EQ(problem_text(alexnet, "features.0"), "mb16ic3ih224oc64oh55kh11sh4ph2");
  EXPECT_EQ(node(alexnet, "features.12").shape, (Shape{16, 256, 6, 6}));
  EXPECT_EQ(problem_text(alexnet2012, "conv1"), "mb1ic3ih224oc96oh55kh11sh4ph2");
  EXPECT_EQ(problem_text(alexnet2012, "conv4"), "g2mb1ic384ih13oc384oh13kh3ph1");

  const Graph overfeat = make_net("overfeat", 1);
  EXPECT_EQ(problem_text(overfeat, "conv2"), "mb1ic96ih28oc256oh24kh5ph0");
  EXPECT_EQ(node(overfeat, "pool5").shape, (Shape{1, 1024, 6, 6}));

  // With batch norm the later indices shift.
  EXPECT_EQ(problem_text(make_net("vgg16", 1), "features.28"), "mb1ic512ih14oc512oh14kh3ph1");
  EXPECT_EQ(problem_text(make_net("vgg16_bn", 1), "features.40"), "mb1ic512ih14oc512oh14kh3ph1");

  const Graph googlenet = make_net("googlenet", 1), paper = make_net("googlenet2014", 1);
  EXPECT_EQ(problem_text(googlenet, "inception3a.branch3.1.conv"), "mb1ic16ih28oc32oh28kh3ph1");
  EXPECT_EQ(problem_text(paper, "inception3a.5x5"), "mb1ic16ih28oc32oh28kh5ph2");
  EXPECT_EQ(problem_text(googlenet, "inception5b.branch4.1.conv"), "mb1ic832ih7oc128oh7kh1ph0");
  EXPECT_EQ(node(googlenet, "inception5b").shape, (Shape{1, 1024, 7, 7}));
  EXPECT_EQ(node(paper, "inception5b").shape, (Shape{1, 1024, 7, 7}));

  EXPECT_EQ(problem_text(make_net("resnet18", 1), "layer2.0.downsample.0"),
            "mb1ic64ih56oc128oh28kh1sh2ph0");
  EXPECT_EQ(problem_text(make_net("resnet50", 1), "layer2.0.conv2"),
            "mb1ic128ih56oc128oh28kh3sh2ph1");
  EXPECT_EQ(problem_text(make_net("resnext50_32x4d", 1), "layer2.0.conv2"),
            "g32mb1ic256ih56oc256oh28kh3sh2ph1");
  EXPECT_EQ(node(make_net("squeezenet1_1", 1), "features.12").shape, (Shape{1, 512, 13, 13}));
  EXPECT_EQ(problem_text(make_net("mobilenet_v2", 1), "features.2.conv.1.0"),
            "g96mb1ic96ih112oc96oh56kh3sh2ph1");
  const Graph mobile = make_net("mobilenet_v3_large", 1),
              efficient = make_net("efficientnet_b0", 1);
  EXPECT_EQ(problem_text(mobile, "features.13.block.1.0"), "g672mb1ic672ih14oc672oh7kh5sh2ph2");
  EXPECT_EQ(problem_text(mobile, "features.4.block.2.fc1"), "mb1ic72ih1oc24oh1kh1ph0");
  EXPECT_EQ(std::get<BatchNorm>(node(mobile, "features.0.1").layer).momentum, 0.01);
  EXPECT_EQ(problem_text(efficient, "features.1.0.block.1.fc1"), "mb1ic32ih1oc8oh1kh1ph0");
  EXPECT_EQ(std::get<Dropout>(node(efficient, "features.6.3.stochastic_depth").layer).p,
            0.2 * 14 / 16);
  EXPECT_EQ(node(make_net("densenet121", 1), "features.norm5").shape, (Shape{1, 1024, 7, 7}));
  EXPECT_EQ(problem_text(make_net("regnet_y_400mf", 1), "trunk_output.block3.block3-0.f.b.0"),
            "g26mb1ic208ih28oc208oh14kh3sh2ph1");
  const Graph inception = make_net("inception_v3", 1);
  EXPECT_EQ(problem_text(inception, "Mixed_6b.branch7x7_2.conv"),
            "mb1ic128ih17iw17oc128oh17ow17kh1kw7ph0pw3");
  EXPECT_EQ(node(inception, "Mixed_7c").shape, (Shape{1, 2048, 8, 8}));
  const Graph shuffle = make_net("shufflenet_v2_x1_0", 1), convnext = make_net("convnext_tiny", 1);
  EXPECT_EQ(problem_text(shuffle, "stage2.0.branch1.0"), "g24mb1ic24ih56oc24oh28kh3sh2ph1");
  EXPECT_EQ(problem_text(shuffle, "stage4.3.branch2.3"), "g232mb1ic232ih7oc232oh7kh3ph1");
  EXPECT_EQ(problem_text(convnext, "features.5.8.block.0"), "g384mb1ic384ih14oc384oh14kh7ph3");
  EXPECT_EQ(std::get<Dropout>(node(convnext, "features.7.2.stochastic_depth").layer).p, 0.1);
  const Graph deeplab = make_net("deeplabv3_resnet50", 1), unet = make_net("unet", 1);
  EXPECT_EQ(problem_text(deeplab, "backbone.layer4.0.conv2"), "mb1ic512ih28oc512oh28kh3ph2dh1");
  EXPECT_EQ(problem_text(deeplab, "backbone.layer4.1.conv2"), "mb1ic512ih28oc512oh28kh3ph4dh3");
  EXPECT_EQ(problem_text(deeplab, "classifier.0.convs.3.0"), "mb1ic2048ih28oc256oh28kh3ph36dh35");
  // Of a transposed convolution, the convolution whose gradient it is.
  EXPECT_EQ(problem_text(unet, "up1.up"), "mb1ic512ih32oc1024oh16kh2sh2ph0");
  EXPECT_EQ(node(unet, "up1.up").shape, (Shape{1, 512, 32, 32}));
  const Graph r3d = make_net("r3d_18", 1), unet3d = make_net("unet3d", 1);
  EXPECT_EQ(problem_text(r3d, "stem.0"),
            "mb1ic3id16ih112iw112oc64od16oh56ow56kd3kh7kw7sd1sh2sw2pd1ph3pw3");
  EXPECT_EQ(problem_text(r3d, "layer2.0.downsample.0"),
            "mb1ic64id16ih56iw56oc128od8oh28ow28kd1kh1kw1sd2sh2sw2pd0ph0pw0");
  EXPECT_EQ(node(r3d, "layer4.1.relu").shape, (Shape{1, 512, 7, 7, 2}));
  EXPECT_EQ(problem_text(unet3d, "synthesis3.up"), "mb1ic512id16oc512od8kd2sd2pd0");
  EXPECT_EQ(node(unet3d, "synthesis3.cat").shape, (Shape{1, 768, 16, 16, 16}));
  EXPECT_EQ(node(make_net("resnet20", 1), "layer3.2.relu").shape, (Shape{1, 64, 8, 8}));
  EXPECT_EQ(problem_text(make_net("lenet", 1), "c5"), "mb1ic16ih5oc120oh1kh5ph0");
}

// Scores of an image, or of each of its pixels.
Shape scores_of(const std::string& net, std::int64_t n, std::int64_t classes) {
  if (net == "unet3d") return {n, 3, 64, 64, 64};
  if (net == "r3d_18") return {n, 400, 1, 1};
  if (net == "unet") return {n, 2, 256, 256};
  if (net == "deeplabv3_resnet50") return {n, 21, 224, 224};
  return {n, classes, 1, 1};
}

TEST(Zoo, EveryNetHoldsTogether) {
  for (const std::string& name : net_names()) {
    const Graph net = make_net(name, 3);
    EXPECT_EQ(net.name(), name);
    EXPECT_EQ(net.nodes().front().shape.n, 3) << name;
    const std::int64_t classes = net.nodes().front().shape.h >= 224 ? 1000
                                 : name.substr(0, 3) == "mlp"       ? 1
                                                                    : 10;
    EXPECT_EQ(net.nodes().back().shape, scores_of(name, 3, classes)) << name;
    // Every layer except the last is read by another one.
    std::set<NodeId> read;
    for (const Node& n : net.nodes()) read.insert(n.inputs.begin(), n.inputs.end());
    EXPECT_EQ(read.size(), net.nodes().size() - 1) << name;

    EXPECT_EQ(net.parameters(), make_net(name, 1).parameters()) << name;
    EXPECT_EQ(net.multiply_adds(), make_net(name, 1).multiply_adds()) << name;
    double flops = 0;
    std::size_t first = 0;
    for (const ConvLayer& conv : conv_layers(net)) {
      EXPECT_EQ(parse_problem(to_text(conv.layer)), conv.layer);
      EXPECT_EQ(conv.layer.problem.n, 3) << name;
      flops += conv.layer.problem.flops();
      first += conv.first;
    }
    EXPECT_LE(flops, 6.0 * static_cast<double>(net.multiply_adds())) << name;
    EXPECT_EQ(first, name.find(':') != name.npos ? 0u : 1u) << name;
    double merged_flops = 0;
    for (const ConvLayer& conv : merge_equal(conv_layers(net)))
      merged_flops += static_cast<double>(conv.layer.count) * conv.layer.problem.flops();
    EXPECT_EQ(merged_flops, flops) << name;
  }
}

TEST(Zoo, EveryNetTakesAnotherNumberOfClasses) {
  for (const std::string& name : net_names()) {
    if (name.find(':') != name.npos) continue;
    const Graph own = make_net(name, 2), seven = make_net(name, 2, 7);
    EXPECT_EQ(seven.name(), name + ":7");
    EXPECT_EQ(seven.nodes().back().shape.c, 7) << name;
    ASSERT_EQ(seven.nodes().size(), own.nodes().size()) << name;
    for (std::size_t i = 0; i < own.head(); ++i) {
      EXPECT_EQ(seven.nodes()[i].name, own.nodes()[i].name) << name;
      EXPECT_EQ(seven.nodes()[i].shape, own.nodes()[i].shape) << name;
    }
    // The name alone gives the same net, and its default number of classes is not mentioned.
    EXPECT_EQ(make_net(name + ":7", 2).parameters(), seven.parameters()) << name;
    const std::int64_t classes = own.nodes().back().shape.c;
    EXPECT_EQ(make_net(name, 2, classes).name(), name);
    EXPECT_EQ(make_net(name + ":" + std::to_string(classes), 2).name(), name);
  }
  EXPECT_EQ(make_net("resnet18:7", 1, 7).name(), "resnet18:7");
  EXPECT_EQ(make_net("mlp:4-7", 1, 7).name(), "mlp:4-7");
}

TEST(Zoo, MergesEqualLayersOfResNet18) {
  std::vector<std::string> texts;
  for (const ConvLayer& conv : merge_equal(conv_layers(make_net("resnet18", 1))))
    texts.push_back(to_text(conv.layer));
  EXPECT_EQ(texts,
            (std::vector<std::string>{"mb1ic3ih224oc64oh112kh7sh2ph3n\"conv1\"",
                                      "mb1ic64ih56oc64oh56kh3ph1n\"layer1.0.conv1*4\"",
                                      "mb1ic64ih56oc128oh28kh3sh2ph1n\"layer2.0.conv1\"",
                                      "mb1ic128ih28oc128oh28kh3ph1n\"layer2.0.conv2*3\"",
                                      "mb1ic64ih56oc128oh28kh1sh2ph0n\"layer2.0.downsample.0\"",
                                      "mb1ic128ih28oc256oh14kh3sh2ph1n\"layer3.0.conv1\"",
                                      "mb1ic256ih14oc256oh14kh3ph1n\"layer3.0.conv2*3\"",
                                      "mb1ic128ih28oc256oh14kh1sh2ph0n\"layer3.0.downsample.0\"",
                                      "mb1ic256ih14oc512oh7kh3sh2ph1n\"layer4.0.conv1\"",
                                      "mb1ic512ih7oc512oh7kh3ph1n\"layer4.0.conv2*3\"",
                                      "mb1ic256ih14oc512oh7kh1sh2ph0n\"layer4.0.downsample.0\""}));
}

// ---- Names ----

std::string all_names() {
  std::string names;
  for (const std::string& name : net_names()) names += (names.empty() ? "" : " ") + name;
  return names;
}

std::string error_of(std::string_view name, std::int64_t batch = 1, std::int64_t classes = 0) {
  try {
    make_net(name, batch, classes);
  } catch (const InputError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Zoo, NamesTheNearestNets) {
  EXPECT_EQ(error_of("resnet19"), "unknown net 'resnet19': did you mean resnet18?");
  EXPECT_EQ(error_of("ResNet-50"), "unknown net 'ResNet-50': did you mean resnet50?");
  for (const std::string name : {"lstm", "GRU:28-32-10", "lstm:28-32-10"})
    EXPECT_EQ(error_of(name), "unknown net '" + name +
                                  "': a net of recurrent layers is written rnn:28-128x2-10:lstm");
  EXPECT_EQ(error_of("vgg"), "unknown net 'vgg': did you mean vgg11 vgg13 vgg16 vgg19?");
  EXPECT_EQ(error_of("vgg12"), "unknown net 'vgg12': did you mean vgg11 vgg13 vgg16 vgg19?");
  for (const char* far_off : {"", "transformer", "mlp"})
    EXPECT_EQ(error_of(far_off),
              "unknown net '" + std::string(far_off) + "': expected one of " + all_names());
}

TEST(Zoo, RefusesImpossibleNumbersOfClasses) {
  for (const char* text : {"", "0", "-3", "ten", "10x", "1048577"})
    EXPECT_EQ(error_of(std::string("resnet18:") + text),
              std::string("malformed net 'resnet18:") + text + "': '" + text +
                  "' is not a number of classes from 1 to 1048576, as in resnet18:10");
  EXPECT_EQ(error_of("resnet19:7"), "unknown net 'resnet19:7': did you mean resnet18?");
  EXPECT_EQ(error_of("resnet18:7", 1, 10),
            "net resnet18:7 has 7 outputs, but there are 10 classes");
  EXPECT_EQ(error_of("mlp:4-3", 1, 10), "net mlp:4-3 has 3 outputs, but there are 10 classes");
}

TEST(Zoo, RefusesImpossibleBatches) {
  EXPECT_EQ(error_of("resnet18", 0), "batch is 0: it takes 1 or more");
  EXPECT_EQ(error_of("resnet18", -4), "batch is -4: it takes 1 or more");
  EXPECT_EQ(error_of("resnet18", std::int64_t{1} << 62).rfind("net resnet18, layer input: ", 0),
            0u);
  // Any batch whose size does not overflow is accepted here; the memory check comes later.
  EXPECT_EQ(error_of("resnet18", 1'000'000'000), "accepted");
}

TEST(Zoo, FamiliesRefuseOtherDepths) {
  EXPECT_THROW(vgg(12, false, 1), InputError);
  EXPECT_THROW(resnet(20, 1), InputError);
  EXPECT_THROW(cifar_resnet(18, 1), InputError);
  EXPECT_THROW(cifar_resnet(2, 1), InputError);
  EXPECT_EQ(conv_layers(cifar_resnet(110, 1)).size(), 109u);
}

// ---- Perceptrons ----

TEST(Mlp, ReadsItsName) {
  const Graph net = make_net("mlp:784-512-256x2-10:relu", 8);
  std::vector<std::int64_t> widths;
  for (const Node& n : net.nodes())
    if (const auto* linear = std::get_if<Linear>(&n.layer)) widths.push_back(linear->outputs);
  EXPECT_EQ(widths, (std::vector<std::int64_t>{512, 256, 256, 10}));
  EXPECT_EQ(std::get<Activation>(node(net, "act1").layer).kind, Activation::Kind::relu);
  // The last layer has no activation.
  EXPECT_TRUE(std::holds_alternative<Linear>(net.nodes().back().layer));
  auto kind = [](std::string_view name) {
    return std::get<Activation>(node(make_net(name, 1), "act1").layer).kind;
  };
  EXPECT_EQ(kind("mlp:20-256x5-1"), Activation::Kind::tanh);
  EXPECT_EQ(kind("mlp:2-3-1:sigmoid"), Activation::Kind::sigmoid);
  EXPECT_EQ(make_net("mlp:3-2", 1).parameters(), 8);
}

TEST(Mlp, SaysWhatIsWrongWithItsName) {
  auto why = [](std::string name) {
    const std::string error = error_of(name), before = "malformed net '" + name + "': ",
                      after = "; expected something like mlp:20-256x5-1";
    if (error.rfind(before, 0) != 0 || error.size() < before.size() + after.size()) return error;
    return error.substr(before.size(), error.size() - before.size() - after.size());
  };
  EXPECT_EQ(why("mlp:"), "'' is not a whole number from 1 to 1048576");
  EXPECT_EQ(why("mlp:20"), "it has no outputs");
  EXPECT_EQ(why("mlp:20-"), "'' is not a whole number from 1 to 1048576");
  EXPECT_EQ(why("mlp:20--1"), "'' is not a whole number from 1 to 1048576");
  EXPECT_EQ(why("mlp:20-0-1"), "'0' is not a whole number from 1 to 1048576");
  EXPECT_EQ(why("mlp:20-2a-1"), "'2a' is not a whole number from 1 to 1048576");
  EXPECT_EQ(why("mlp:20-99999999999999999999-1"),
            "'99999999999999999999' is not a whole number from 1 to 1048576");
  EXPECT_EQ(why("mlp:20-256x-1"), "'' is not a whole number from 1 to 1024");
  EXPECT_EQ(why("mlp:20-256x5"), "'256x5' repeats, but inputs and outputs stand once");
  EXPECT_EQ(why("mlp:20-1x600-1x600-1"), "it has more than 1024 hidden layers");
  EXPECT_EQ(why("mlp:20-3-1:swish"), "'swish' is not tanh, relu or sigmoid");
}

// ---- Recurrent nets ----

TEST(Rnn, ReadsItsName) {
  const Graph net = make_net("rnn:28-128x2-10:lstm", 8);
  EXPECT_EQ(net.nodes().front().shape, (Shape{8, 1, 28, 28}));
  const auto layer = std::get<Recurrent>(node(net, "rnn").layer);
  EXPECT_EQ(layer.cell, RecurrentCell::lstm);
  EXPECT_EQ(layer.hidden, 128);
  EXPECT_EQ(layer.layers, 2);
  EXPECT_FALSE(layer.bidirectional);
  // 28 steps of two layers' products, and those of the outputs.
  EXPECT_EQ(net.multiply_adds(), 28 * 4 * 128 * (28 + 128 + 2 * 128) + 1280);

  const Graph other = make_net("rnn:5x9-7-3:relu:bi", 2);
  EXPECT_EQ(other.nodes().front().shape, (Shape{2, 1, 9, 5}));
  EXPECT_EQ(node(other, "rnn").shape, (Shape{2, 14, 1, 1}));
  EXPECT_EQ(other.nodes().back().shape, (Shape{2, 3, 1, 1}));
  const auto cell = [](std::string_view name) {
    return std::get<Recurrent>(node(make_net(name, 1), "rnn").layer).cell;
  };
  EXPECT_EQ(cell("rnn:4-5-6"), RecurrentCell::rnn_tanh);
  EXPECT_EQ(cell("rnn:4-5-6:bi"), RecurrentCell::rnn_tanh);
  EXPECT_EQ(cell("rnn:4-5-6:tanh:bi"), RecurrentCell::rnn_tanh);
  EXPECT_EQ(cell("rnn:4-5-6:relu"), RecurrentCell::rnn_relu);
  EXPECT_EQ(cell("rnn:4-5-6:gru"), RecurrentCell::gru);
}

TEST(Rnn, SaysWhatIsWrongWithItsName) {
  const auto why = [](std::string name) {
    const std::string error = error_of(name), before = "malformed net '" + name + "': ",
                      after = "; expected something like rnn:28-128x2-10:lstm";
    if (error.rfind(before, 0) != 0 || error.size() < before.size() + after.size()) return error;
    return error.substr(before.size(), error.size() - before.size() - after.size());
  };
  EXPECT_EQ(why("rnn:"), "'' is not a whole number from 1 to 1048576");
  EXPECT_EQ(why("rnn:28"), "it has 1 part, not inputs, hidden units and outputs");
  EXPECT_EQ(why("rnn:28-10"), "it has 2 parts, not inputs, hidden units and outputs");
  EXPECT_EQ(why("rnn:28-1-2-10"), "it has 4 parts, not inputs, hidden units and outputs");
  EXPECT_EQ(why("rnn:28x0-1-10"), "'0' is not a whole number from 1 to 1024");
  EXPECT_EQ(why("rnn:28-0-10"), "'0' is not a whole number from 1 to 1048576");
  EXPECT_EQ(why("rnn:28-8-10x2"), "'10x2' repeats, but outputs stand once");
  for (const char* word : {"elman", "", "bi:lstm", "lstmbi", "lstm:bi:bi"})
    EXPECT_EQ(why(std::string("rnn:28-8-10:") + word),
              std::string("'") + (std::string(word) == "lstm:bi:bi" ? "lstm:bi" : word) +
                  "' is not tanh, relu, gru or lstm, perhaps with :bi")
        << word;
  EXPECT_EQ(error_of("rnn:28-8-10", 1, 7),
            "net rnn:28-8-10 has 10 outputs, but there are 7 classes");
}

}  // namespace
}  // namespace convlab::nets
