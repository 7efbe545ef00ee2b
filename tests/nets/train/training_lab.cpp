#include "tests/nets/train/training_lab.h"

#include <random>

#include "conv/types/arithmetic_type.h"
#include "nets/tensor.h"

namespace convlab::nets {
namespace {

Graph small(std::int64_t batch) {
  Graph net("bands");
  input(net, {batch, 1, 8, 8})
      .conv("conv", {.filters = 6, .kernel = 3, .pad = 1, .bias = false})
      .batch_norm("bn")
      .relu("relu")
      .max_pool("pool", 2, 2)
      .dropout("dropout", 0.2)
      .linear("fc", 4);
  return net;
}

DataLoader make_loader(const Dataset& images, std::int64_t batch, std::uint64_t seed, DType dtype,
                       bool train, Device& device) {
  Transform transform;
  transform.channels = 1;
  transform.height = transform.width = 8;
  transform.random_flip = train;
  transform.mean = transform.deviation = {0.5};
  return DataLoader(images, transform,
                    {.batch = batch,
                     .shuffle = train,
                     .drop_last = train,
                     .seed = seed,
                     .dtype = arithmetic_type(dtype)},
                    device);
}

}  // namespace

Bands::Bands(std::int64_t size, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  for (std::int64_t i = 0; i < size; ++i) {
    Image image{1, 8, 8, std::vector<std::uint8_t>(64)};
    for (std::size_t p = 0; p < 64; ++p) {
      const bool bright = std::int64_t(p) / 16 == i % 4;
      image.pixels[p] = std::uint8_t(random() % 128 + (bright ? 127 : 0));
    }
    images_.push_back(std::move(image));
  }
}

TrainingLab::TrainingLab(std::unique_ptr<Device> on, const AlgoRegistry& algos,
                         const std::string& algo, std::uint64_t seed, DType dtype,
                         std::int64_t batch, std::int64_t count)
    : device(std::move(on)),
      images(count),
      test_images(20, 2),
      graph(small(batch)),
      net(graph, uniform_plan(graph, Mode::training, dtype, algo, Layout::nchw, *device, 0, algos),
          algos, *device, {.dropout_seed = seed}),
      test_net(graph,
               uniform_plan(graph, Mode::inference, dtype, algo, Layout::nchw, *device, 0, algos),
               algos, *device, {.loss = Loss::none}),
      loader(make_loader(images, batch, seed, dtype, true, *device)),
      test_loader(make_loader(test_images, batch, seed, dtype, false, *device)) {
  net.initialise(seed);
}

std::vector<std::byte> TrainingLab::bytes(const Parameter& p) {
  std::vector<std::byte> host(std::size_t(p.count * size_of(net.value_type())));
  net.read(p.value, host);
  return host;
}

std::vector<std::vector<std::byte>> TrainingLab::everything() {
  std::vector<std::vector<std::byte>> all;
  for (const Parameter& p : net.parameters()) {
    all.push_back(bytes(p));
    for (std::byte* const state : p.state) {
      if (state == nullptr) continue;
      all.push_back(all.back());
      net.read(state, all.back());
    }
  }
  const NetCounters counters = net.counters();
  all.emplace_back(counters.forwards, std::byte{});
  all.emplace_back(std::size_t(counters.updates), std::byte{});
  return all;
}

}  // namespace convlab::nets
