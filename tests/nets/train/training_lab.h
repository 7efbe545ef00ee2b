// Everything needed to train a tiny net: images in memory, and a net with batch norm and dropout
// that learns to distinguish them.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels_cpu/cpu.h"
#include "nets/train/trainer.h"
#include "tests/nets/net_lab.h"

namespace convlab::nets {

// 8x8 grey images: noise with a bright band at the class's height.
class Bands : public Dataset {
 public:
  explicit Bands(std::int64_t size, std::uint64_t seed = 1);
  std::int64_t size() const override { return std::int64_t(images_.size()); }
  const std::vector<std::string>& classes() const override { return classes_; }
  std::int32_t label(std::int64_t i) const override { return std::int32_t(i % 4); }
  Image image(std::int64_t i) const override { return images_[std::size_t(i)]; }
  std::string name(std::int64_t i) const override { return fmt::format("#{}", i); }

 private:
  std::vector<Image> images_;
  std::vector<std::string> classes_{"a", "b", "c", "d"};
};

struct TrainingLab {
  explicit TrainingLab(std::uint64_t seed = 1, DType dtype = DType::f32, std::int64_t batch = 8,
                       std::int64_t images = 40)
      : TrainingLab(make_cpu_device({2, ""}), cpu_registry(), "im2col", seed, dtype, batch,
                    images) {}
  TrainingLab(std::unique_ptr<Device>, const AlgoRegistry&, const std::string& algo,
              std::uint64_t seed = 1, DType = DType::f32, std::int64_t batch = 8,
              std::int64_t images = 40);

  std::vector<std::byte> bytes(const Parameter&);
  // All parameters, their state, and the counters, which must not differ by a bit.
  std::vector<std::vector<std::byte>> everything();

  std::unique_ptr<Device> device;
  Bands images, test_images;
  Graph graph;
  Net net, test_net;
  DataLoader loader, test_loader;
};

}  // namespace convlab::nets
