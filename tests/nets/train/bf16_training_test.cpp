// A net trained in bf16 ends where one trained in f32 does.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "nets/tensor.h"
#include "tests/nets/train/training_lab.h"

namespace convlab::nets {
namespace {

// As resnet20 (He et al. 2015, section 4.2), for images of 8x8 and with one block a stage.
Graph small_resnet(std::int64_t batch) {
  Graph net("small_resnet");
  const auto conv_bn = [](Tensor x, const std::string& name, std::int64_t filters,
                          std::int64_t stride, std::int64_t kernel = 3) {
    const Conv conv{
        .filters = filters, .kernel = kernel, .stride = stride, .pad = kernel / 2, .bias = false};
    return x.conv(name, conv).batch_norm(name + ".bn");
  };
  Tensor x = conv_bn(input(net, {batch, 1, 8, 8}), "stem", 8, 1).relu("stem.relu");
  for (const std::int64_t filters : {8, 16}) {
    const std::string name = fmt::format("block{}", filters);
    const std::int64_t stride = filters / 8;
    const Tensor y = conv_bn(conv_bn(x, name + ".a", filters, stride).relu(name + ".a.relu"),
                             name + ".b", filters, 1);
    const Tensor shortcut = stride == 1 ? x : conv_bn(x, name + ".short", filters, stride, 1);
    x = add(name + ".add", y, shortcut).relu(name + ".relu");
  }
  x.global_avg_pool("pool").linear("fc", 4);
  return net;
}

// The share of images that were not trained with and are right in the end.
double accuracy(DType dtype, std::uint64_t seed) {
  const auto device = make_cpu_device({2, ""});
  const std::int64_t batch = 16;
  const Bands images(320), test_images(1000, 2);
  const Graph graph = small_resnet(batch);
  const auto plan = [&](Mode mode) {
    return uniform_plan(graph, mode, dtype, "implicit_gemm", Layout::nchw16c, *device);
  };
  Net net(graph, plan(Mode::training), cpu_algos(), *device);
  Net test_net(graph, plan(Mode::inference), cpu_algos(), *device, {.loss = Loss::none});
  net.initialise(seed);
  Transform transform;
  transform.channels = 1;
  transform.height = transform.width = 8;
  transform.mean = transform.deviation = {0.5};
  DataLoader loader(
      images, transform,
      {.batch = batch, .shuffle = true, .drop_last = true, .seed = seed, .dtype = net.value_type()},
      *device);
  DataLoader test_loader(test_images, transform, {.batch = batch, .dtype = net.value_type()},
                         *device);
  double rate = 0;
  Trainer trainer(net, loader,
                  {.epochs = 6,
                   .rule = SgdDesc{.rate = 0.1, .momentum = 0.9, .weight_decay = 1e-4},
                   .schedule = parse_schedule("cosine"),
                   .on_epoch = [&](const EpochReport& r) {
                     rate = r.test->top1_rate();
                     return true;
                   }});
  trainer.test_with(test_net, test_loader);
  EXPECT_TRUE(trainer.run());
  return rate;
}

// A quarter is right by chance.
TEST(Bf16Training, EndsWhereF32Does) {
  for (const std::uint64_t seed : {1, 2}) {
    const double f32 = accuracy(DType::f32, seed);
    EXPECT_GT(f32, 0.99) << "learns";
    EXPECT_NEAR(accuracy(DType::bf16, seed), f32, 0.003);
  }
}

}  // namespace
}  // namespace convlab::nets
