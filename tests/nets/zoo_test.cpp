#include "nets/zoo.h"

#include <gtest/gtest.h>

#include <set>

#include "conv/error.h"

namespace convlab {
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

// Parameters and multiply-adds of torchvision's models where it has them, and of the papers' nets.
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
                                         Counts{"resnet152", 60'192'808, 11'513'626'624, 155}),
                         [](const auto& info) { return info.param.name; });

TEST(Zoo, ParametersOfThePapersNets) {
  EXPECT_EQ(make_net("alexnet2012", 1).parameters(), 60'965'224);
  EXPECT_EQ(make_net("googlenet2014", 1).parameters(), 6'998'552);
  EXPECT_EQ(make_net("lenet", 1).parameters(), 61'706);
  EXPECT_EQ(make_net("mlp:20-256x5-1", 1).parameters(), 268'801);
  // The paper says 0.27M and 0.85M.
  EXPECT_EQ(make_net("resnet20", 1).parameters(), 269'722);
  EXPECT_EQ(make_net("resnet56", 1).parameters(), 853'018);
}

}  // namespace
}  // namespace convlab
