// Ranks as threads, each with a net, images and loaders.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "kernels_cpu/cpu.h"
#include "nets/distributed/in_process.h"
#include "nets/train/trainer.h"
#include "tests/nets/train/training_lab.h"

namespace convlab::nets {

// Runs it on so many ranks, each on a thread. A rank that throws ends the others; the first one's
// exception is rethrown.
void on_ranks(int size, const std::function<void(Communicator&)>& run, double patience_s = 60);

// A net without batch norm, so that ranks compute what a single process computes.
Graph plain_net(std::int64_t batch);
// The same with a batch norm behind each convolution.
Graph normalised_net(std::int64_t batch);

// One rank's share of a training that has batches of 8 in all.
struct RankLab {
  static constexpr std::int64_t batch = 8;
  RankLab(int rank, int ranks, DType dtype, std::unique_ptr<Device> = make_cpu_device({1, ""}),
          Graph (*graph)(std::int64_t batch) = &plain_net, AllReduceSums = nullptr);
  explicit RankLab(const Communicator& c, DType dtype = DType::f64)
      : RankLab(c.rank(), c.size(), dtype) {}

  // By parameter.
  std::vector<Values> weights();
  std::vector<Values> gradients();
  Values read(const std::byte* from, std::int64_t count);
  void step(GradientExchange* exchange);  // a whole iteration on the next batch

  std::unique_ptr<Device> device;
  Bands images, test_images;
  Net net, test_net;
  DataLoader loader, test_loader;
};

}  // namespace convlab::nets
