// A net that runs: a graph's steps on a device, as a plan says.
//
//   Net net(resnet(18, 16), plan, registry, device, {.loss = Loss::cross_entropy});
//   net.initialise(seed);
//   net.set_input(images);  net.set_labels(labels);
//   net.forward();  double loss = net.loss();
//   net.backward(); net.update(SgdDesc{.rate = 0.1, .momentum = 0.9});
//
// Or by a loss of one's own (and .loss = Loss::none):
//
//   net.forward();  net.read_output(scores);
//   net.backward(gradient_of_scores);  net.update(...);
//
// Whatever is given is checked: InputError says what would be right.
//
// All memory is allocated by the constructor (optimizer state by the first update that needs it);
// forward, backward and update allocate nothing (but to convert the layout of a given gradient).
// Work is queued on one stream; what takes something from the host, or gives it something, waits
// for it.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "conv/device.h"
#include "conv/registry.h"
#include "nets/label.h"
#include "nets/plan/plan.h"

namespace convlab::nets {

enum class Loss : std::uint8_t { none, cross_entropy, squared_error };

// What a step does in an iteration.
enum class Phase : std::uint8_t { forward, backward_data, backward_filter, update };
inline constexpr std::array all_phases{Phase::forward, Phase::backward_data, Phase::backward_filter,
                                       Phase::update};
std::string_view to_string(Phase);  // "fwd", "bwd_d", "bwd_w", "update"

struct NetOptions {
  Loss loss = Loss::cross_entropy;  // of the last node's value; training only
  bool input_gradient = false;      // backward goes down to the input
  std::uint64_t dropout_seed = 0;
  // For tests: a buffer is NaN before its first writer and after its last reader, and so is the
  // workspace before each use.
  bool poison = false;
};

// A trained value, its gradient, or a running statistic. Filters are KCRS, the weights of a fully
// connected layer K x C.
struct Parameter {
  std::string name;  // torchvision's key: "layer1.0.conv1.weight", "bn1.running_mean"
  std::vector<std::int64_t> shape;
  std::int64_t count = 0;         // elements, of the net's data type
  std::byte* value = nullptr;     // on the device; null: freed by freeze
  std::byte* gradient = nullptr;  // of the mean loss; null: not trained (running statistics)
  // The optimizer's, as long as value: velocity, or Adam's average of gradients; Adam's average of
  // their squares. Null until Net::start_optimizer or an update needs them.
  std::array<std::byte*, 2> state{};
};

// What of a net's past its next iteration depends on, beside the parameters and their state.
struct NetCounters {
  std::uint64_t forwards = 0;  // dropout draws anew in each
  std::int64_t updates = 0;    // Adam corrects its averages by it
};

// Bytes on the device. Activations, their gradients and workspaces share the arena: each is there
// only while somebody needs it.
struct MemoryUse {
  std::size_t weights = 0;      // parameters and running statistics, packed filters
  std::size_t activations = 0;  // live at the arena's fullest moment
  std::size_t gradients = 0;    // of activations, at that moment; and of the weights
  std::size_t workspace = 0;    // at that moment, with filters that are packed for one run
  std::size_t optimizer = 0;
  std::size_t arena = 0;  // activations, their gradients and workspaces together, as laid out
  std::size_t total = 0;  // all that is allocated
};

using UpdateRule = std::variant<SgdDesc, AdamDesc>;

// Called after each step, with the stream drained before and after it. Seconds since the observer
// was set.
using StepObserver = std::function<void(const Step&, Phase, double begin_s, double end_s)>;

struct Interrupted {};  // thrown as Net::stop_when says

class Net {
 public:
  // Throws InputError when the plan is not for this graph (net, batch, steps), when an algorithm is
  // unknown or refuses, when the batch is too big for the device (naming one that would fit, nearly
  // the largest); OutOfMemory when no batch fits, or other nets have the memory. The registry and
  // the device outlive the net; the graph and the plan are copied.
  Net(Graph, const NetPlan&, const AlgoRegistry&, Device&, const NetOptions& = {});
  ~Net();

  const Graph& graph() const;
  const NetPlan& plan() const;
  const std::vector<Step>& steps() const;
  Stream& stream();
  MemoryUse memory() const;
  // With the activations and gradients that are live while a step runs.
  MemoryUse memory_during(std::size_t step, Phase) const;
  // What such a net, updated by this rule, or in inference frozen, will have allocated. Nothing is
  // allocated to know it.
  static MemoryUse memory_needed(const Graph&, const NetPlan&, const AlgoRegistry&, Device&,
                                 const NetOptions&, const UpdateRule&);

  // He et al. 2015 (arXiv:1502.01852) for what a ReLU follows, else Glorot & Bengio 2010; biases 0,
  // batch norm 1 and 0. The same numbers on every device.
  void initialise(std::uint64_t seed);
  const std::vector<Parameter>& parameters() const;
  // In inference, filters are folded and packed by the next forward after weights have changed:
  // whoever writes to Parameter::value says so.
  void parameters_changed();
  // In inference, once the weights are final: folds and packs them now, and frees what was folded
  // or packed, whose Parameter::value is null from then on. InputError in training, and when a
  // frozen net's weights are to change, or to be read.
  void freeze();

  // From the host or the device: f32 or f64 as the net's type, NCHW of the input's shape; targets
  // as the output's shape. One label an image, from the host: a class, or no_label. These wait for
  // the stream, so that what is given may change once they return; what is set holds until it is
  // set anew.
  void set_input(ConstSpan);
  void set_labels(std::span<const std::int32_t>);
  void set_targets(ConstSpan);

  // Each throws InputError before what it reads was set or computed.
  void forward();
  void backward();  // of the mean loss; training mode only
  // Back-propagates the caller's own gradient of the output, whatever NetOptions::loss is: NCHW, in
  // the net's type, on the host or the device. A mean over the batch is the caller's to divide by.
  void backward(ConstSpan output_gradient);
  void update(const UpdateRule&);  // Adam's step is counted here
  double loss();                   // mean over the batch, of the last forward

  // Gives parameters the state that updates by this rule need, zero where it is new.
  void start_optimizer(const UpdateRule&);
  NetCounters counters() const;
  void set_counters(const NetCounters&);

  // Copies to the host, NCHW, of the net's data type.
  void read_output(Span);          // the last node's value: scores, before the softmax
  void read_input_gradient(Span);  // with input_gradient
  // From and to a Parameter's value, gradient or state, or a part of one. Wait for the stream.
  void read(const std::byte* from, Span);
  void write(std::byte* to, ConstSpan);

  void observe(StepObserver);  // null: nobody
  // Once *stop is set (by a signal, say), forward and backward end before their next step and throw
  // Interrupted; a forward makes good what is missing. null: never.
  void stop_when(const std::atomic<bool>* stop);
  // For an observer of this step's forward: whether it left neither an infinity nor a NaN.
  bool is_output_finite(const Step&);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace convlab::nets
