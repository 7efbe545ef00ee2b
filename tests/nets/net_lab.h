// Small nets of every kind of layer, and one training iteration of them in any setting. Values on
// the host are always double, in NCHW order.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "conv/device.h"
#include "conv/registry.h"
#include "nets/net.h"

namespace convlab::nets {

const AlgoRegistry& cpu_registry();

struct SmallNet {
  std::string name;
  std::function<Graph(std::int64_t batch)> make;

  friend void PrintTo(const SmallNet& net, std::ostream* os) { *os << net.name; }
};
// Together they have every kind of layer, shortcuts, values that several steps read, and channels
// that fill no block.
const std::vector<SmallNet>& small_nets();
const SmallNet& small_net(const std::string& name);

// One layout and one algorithm, or family, everywhere. If all of it refuse, the family direct, then
// im2col's; if the layout is unsuitable, nchw. Has all passes.
NetPlan uniform_plan(const Graph&, Mode, DType, const std::string& algo, Layout, Device&,
                     std::int64_t images = 0, const AlgoRegistry& = cpu_registry());

// Fills in all passes of a convolution's step in the step's layouts, some images at a time; false
// if none of the algorithms takes one of the passes.
bool choose_algos(const Graph&, const Node&, DType, const std::string& algo, Device&,
                  std::int64_t images, const AlgoRegistry&, StepPlan&);

using Values = std::vector<double>;
Values random_values(std::int64_t count, std::uint64_t seed);

// A net and everything that a seed decides: parameters that differ from their trivial initial
// values, input, labels or targets.
class NetLab {
 public:
  NetLab(Graph, const NetPlan&, Device&, NetOptions = {}, std::uint64_t seed = 1,
         const AlgoRegistry& = cpu_registry());

  Net& net() { return net_; }
  const Parameter& parameter(const std::string& name) const;
  Values read(const std::byte* from, std::int64_t count);
  void write(std::byte* to, const Values&);
  void set_input(const Values&);
  void set_targets(const Values&);
  const Values& input() const { return input_; }

  double forward();  // the loss, if there is one
  void backward(const Values& output_gradient);
  Values output();
  Values input_gradient();
  // All gradients by name; that of the input is "input".
  std::map<std::string, Values> gradients();

 private:
  std::vector<std::byte> to_bytes(const Values&) const;
  Values from_bytes(const std::vector<std::byte>&) const;

  Device& device_;
  NetOptions options_;
  Net net_;
  Values input_;
};

// Norm of the difference over the norm of the expected values; infinite if anything is not finite.
double relative_error(const Values& got, const Values& expected);

}  // namespace convlab::nets
