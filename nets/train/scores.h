// How good a net's answers are.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "nets/data/loader.h"
#include "nets/net.h"

namespace convlab::nets {

// Sums over images.
struct Scores {
  std::int64_t images = 0;
  std::int64_t top1 = 0, top5 = 0;  // whose label scored highest, or among the five highest
  double loss = 0;                  // cross entropy

  double mean_loss() const { return images > 0 ? loss / double(images) : 0; }
  double top1_rate() const { return images > 0 ? double(top1) / double(images) : 0; }
  double top5_rate() const { return images > 0 ? double(top5) / double(images) : 0; }
  Scores& operator+=(const Scores&);
  friend bool operator==(const Scores&, const Scores&) = default;
};

// Of one batch, by a net's output as Net::read_output gives it. Images with no_label do not count;
// of classes with equal scores the first is ahead; what is not finite is wrong. Throws InputError
// for a label that is no class, and for an output that is not one row of scores a label.
Scores score(ConstSpan output, DType, std::span<const std::int32_t> labels);

// Over all of the loader's images, with a net in inference mode. Nothing when `go_on`, asked after
// each batch, said no.
std::optional<Scores> evaluate(Net&, DataLoader&, const std::function<bool()>& go_on = {});

// Parameters and running statistics, between nets of one graph and type on one device.
void copy_parameters(Net& from, Net& to);

}  // namespace convlab::nets
