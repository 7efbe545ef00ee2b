// Small nets of every kind of layer, and one training iteration of them in any setting. Values on
// the host are always double, in NCHW order.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "conv/device.h"
#include "nets/algos.h"
#include "nets/net.h"

namespace convlab::nets {

const AlgoRegistry& cpu_registry();
const RecurrentRegistry& cpu_recurrent();
const NetAlgos& cpu_algos();  // both

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
// im2col's, or the first for recurrent layers; if the layout is unsuitable, nchw. Has all passes.
NetPlan uniform_plan(const Graph&, Mode, DType, const std::string& algo, Layout, Device&,
                     std::int64_t images = 0, const NetAlgos& = cpu_algos());

// Fills in all passes of a convolution's step in the step's layouts, some images at a time; false
// if none of the algorithms takes one of the passes.
bool choose_algos(const Graph&, const Node&, DType, const std::string& algo, Device&,
                  std::int64_t images, const AlgoRegistry&, StepPlan&);

// Each pass by this algorithm, or by the first if none has its name or it refuses the pass.
std::array<std::optional<PassPlan>, 3> recurrent_passes(RecurrentProblem, const std::string& algo,
                                                        Device&, const RecurrentRegistry&);

using Values = std::vector<double>;
Values random_values(std::int64_t count, std::uint64_t seed);

// A net and everything that a seed decides: parameters that differ from their trivial initial
// values, input, labels or targets.
class NetLab {
 public:
  NetLab(Graph, const NetPlan&, Device&, NetOptions = {}, std::uint64_t seed = 1,
         const NetAlgos& = cpu_algos());

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

// The default is the net's own loss.
struct TestedLoss {
  std::function<double(NetLab&)> forward = [](NetLab& lab) { return lab.forward(); };
  std::function<void(NetLab&)> backward = [](NetLab& lab) { lab.net().backward(); };
};

// dloss/dvalue by central differences in a few elements. Each uses a new net, since dropout draws
// anew in each iteration. ReLUs and maxima that switch within the step would show; with a step of
// 1e-6 none do.
void check_gradients(const Graph&, const NetPlan&, Device&, const NetOptions&,
                     const TestedLoss& = {});

// Norm of the difference over the norm of the expected values; infinite if anything is not finite.
double relative_error(const Values& got, const Values& expected);

}  // namespace convlab::nets
