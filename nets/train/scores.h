// The accuracy of a net's answers.
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
  std::int64_t top1 = 0, top5 = 0;  // label scored highest, or among the five highest
  double loss = 0;                  // cross entropy

  double mean_loss() const { return images > 0 ? loss / double(images) : 0; }
  double top1_rate() const { return images > 0 ? double(top1) / double(images) : 0; }
  double top5_rate() const { return images > 0 ? double(top5) / double(images) : 0; }
  Scores& operator+=(const Scores&);
  friend bool operator==(const Scores&, const Scores&) = default;
};

// Scores one batch, from a net's output as Net::read_output gives it. Images with no_label do not
// count; among equal scores the first class ranks higher; a non-finite score is wrong. Throws
// InputError for an invalid label, and for an output that is not one row of scores per label.
Scores score(ConstSpan output, DType, std::span<const std::int32_t> labels);

// Scores all of the loader's images, with a net in inference mode. nullopt when `go_on`, called
// after each batch, returned false.
std::optional<Scores> evaluate(Net&, DataLoader&, const std::function<bool()>& go_on = {});

// Copies parameters and running statistics between nets of one graph and type on one device.
void copy_parameters(Net& from, Net& to);

}  // namespace convlab::nets
