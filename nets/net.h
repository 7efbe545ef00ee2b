// A runnable net: a graph's steps on a device, as a plan specifies.
//
//   Net net(resnet(18, 16), plan, registry, device, {.loss = Loss::cross_entropy});
//   net.initialise(seed);
//   net.set_input(images);  net.set_labels(labels);
//   net.forward();  double loss = net.loss();
//   net.backward(); net.update(SgdDesc{.rate = 0.1, .momentum = 0.9});
//
// With the caller's own loss (and .loss = Loss::none):
//
//   net.forward();  net.read_output(scores);
//   net.backward(gradient_of_scores);  net.update(...);
//
// All arguments are checked: InputError says what would be right.
//
// The constructor allocates all memory (the first update that needs optimizer state allocates it).
// forward, backward and update allocate nothing, except to convert the layout of a given gradient.
// Work is queued on one stream; functions that exchange data with the host wait for it.
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
#include "nets/algos.h"
#include "nets/label.h"
#include "nets/plan/plan.h"

namespace convlab::nets {

enum class Loss : std::uint8_t { none, cross_entropy, squared_error };

// Adds each of these values over all workers, and writes the same sums to every worker.
using AllReduceSums = std::function<void(std::span<double>)>;

// A step's phases in an iteration.
enum class Phase : std::uint8_t { forward, backward_data, backward_filter, update };
inline constexpr std::array all_phases{Phase::forward, Phase::backward_data, Phase::backward_filter,
                                       Phase::update};
std::string_view to_string(Phase);  // "fwd", "bwd_d", "bwd_w", "update"

struct NetOptions {
  Loss loss = Loss::cross_entropy;  // of the last node's value; training only
  bool input_gradient = false;      // backward computes the input's gradient too
  // Dropout's draws depend on an image's place in the batch. Of a worker that has a share of it:
  // the place of its first image.
  std::uint64_t dropout_seed = 0;
  std::int64_t first_image = 0;
  // Synchronised batch norm: in training its statistics are those of several workers' batches
  // together. Each worker has a net of the same layers. Every batch norm calls this once in forward
  // and once in backward, so all workers do in the same order; those two then wait for the stream.
  // The parameters' gradients remain those of the worker's own loss: the average over workers is
  // the gradient of the mean loss. Null: each net has its own batch's statistics.
  AllReduceSums all_reduce_sums = nullptr;
  // For tests: a buffer is NaN before its first writer and after its last reader, and so is the
  // workspace before each use.
  bool poison = false;
};

// A trained value, its gradient, or a running statistic. Filters are KCRS, the weights of a fully
// connected layer K x C, those of a recurrent layer PyTorch's, gates in its order. The elements
// have Net::value_type().
struct Parameter {
  std::string name;  // torchvision's key: "layer1.0.conv1.weight", "bn1.running_mean"
  std::vector<std::int64_t> shape;
  std::int64_t count = 0;         // elements
  std::byte* value = nullptr;     // on the device; null: freed by freeze
  std::byte* gradient = nullptr;  // of the mean loss; null: not trained (running statistics)
  // The optimizer's, of value's length: velocity, or Adam's average of gradients; Adam's average of
  // their squares. Null until Net::start_optimizer or an update needs them.
  std::array<std::byte*, 2> state{};
};

// A net's past as far as its next iteration depends on it, besides the parameters and their state.
struct NetCounters {
  std::uint64_t forwards = 0;  // dropout draws afresh in each
  std::int64_t updates = 0;    // Adam's bias correction uses it
};

// Bytes on the device. Activations, their gradients and workspaces share the arena: each is there
// only while it is needed.
struct MemoryUse {
  std::size_t weights = 0;      // parameters and running statistics, packed filters
  std::size_t activations = 0;  // live at the arena's fullest moment
  std::size_t gradients = 0;    // of activations, at that moment; and of the weights
  std::size_t workspace = 0;    // at that moment, with filters that are packed for one run
  std::size_t optimizer = 0;
  std::size_t arena = 0;  // activations, their gradients and workspaces, as laid out
  std::size_t total = 0;  // all allocated memory
};

using UpdateRule = std::variant<SgdDesc, AdamDesc>;

// Called after each step, with the stream drained before and after it. Seconds since the observer
// was set.
using StepObserver = std::function<void(const Step&, Phase, double begin_s, double end_s)>;

// Called by backward when the gradients of parameters() from `first` on are final: on the CPU
// computed, on a card queued on the stream. Ends with first = 0.
using GradientObserver = std::function<void(std::size_t first)>;

struct Interrupted {};  // thrown because of Net::stop_when

class Net {
 public:
  // Throws InputError when the plan is not for this graph (net, batch, steps), when an algorithm is
  // unknown or refuses, and when the batch is too big for the device (naming one that would fit,
  // nearly the largest). Throws OutOfMemory when no batch fits, or other nets have the memory. The
  // algorithms and the device outlive the net; the graph and the plan are copied.
  Net(Graph, const NetPlan&, const NetAlgos&, Device&, const NetOptions& = {});
  ~Net();

  const Graph& graph() const;
  const NetPlan& plan() const;
  // Of parameters, and of all values that come from the caller or go there: f64 in a net of f64,
  // else f32. A net of bf16 stores activations and their gradients in 16 bits, computes layers in
  // f32, and rounds an input and widens an output itself.
  DType value_type() const;
  const std::vector<Step>& steps() const;
  Stream& stream();
  Device& device();
  MemoryUse memory() const;
  // Counts the activations and gradients that are live while a step runs.
  MemoryUse memory_during(std::size_t step, Phase) const;
  // Memory that such a net will have allocated, if updated by this rule or, in inference, frozen.
  // This call allocates nothing.
  static MemoryUse memory_needed(const Graph&, const NetPlan&, const NetAlgos&, Device&,
                                 const NetOptions&, const UpdateRule&);

  // He et al. 2015 (arXiv:1502.01852) for layers before a ReLU, else Glorot & Bengio 2010; biases
  // 0, batch norm 1 and 0. The same numbers on every device.
  void initialise(std::uint64_t seed);
  const std::vector<Parameter>& parameters() const;
  // All gradients, on the device: one block in the order of parameters(), with zeros in between.
  Span gradients();
  // A parameter's value, or all gradients as gradients() has them, are in the caller's memory on
  // the device from now on, which must stay; the net's own is freed. The memory is aligned to 64
  // bytes, and that of gradients has zeros in between. A value of null is in the net's own memory
  // again, with undefined contents. Throws InputError for a recurrent layer's parameters and a
  // frozen net.
  void place_parameter(std::size_t index, std::byte* value);
  void place_gradients(Span);
  // In inference, the next forward folds and packs filters after weights have changed. Call this
  // after writing to Parameter::value.
  void parameters_changed();
  // In inference, once the weights are final: folds and packs them now, and frees the folded or
  // packed originals, whose Parameter::value is then null. Throws InputError in training, and when
  // a frozen net's weights are to change or to be read.
  void freeze();

  // From the host or the device: of value_type(), NCHW or NHWC of the input's shape;
  // targets have the output's shape, in NCHW. One label per image, from the host: a class, or
  // no_label. These wait for the stream, so the caller may change its data once they return. Values
  // stay until set again.
  void set_input(ConstSpan, Layout = Layout::nchw);
  void set_labels(std::span<const std::int32_t>);
  void set_targets(ConstSpan);

  // Each throws InputError if its inputs were not set or computed before.
  void forward();
  void backward();  // of the mean loss; training mode only
  // Back-propagates the caller's own gradient of the output, whatever NetOptions::loss is: NCHW or
  // NHWC, of value_type(), on the host or the device. For a mean over the batch the caller divides.
  void backward(ConstSpan output_gradient, Layout = Layout::nchw);
  void update(const UpdateRule&);  // counts Adam's step
  double loss();                   // mean over the batch, of the last forward

  // Allocates the parameter state that this rule needs; new state is zero.
  void start_optimizer(const UpdateRule&);
  NetCounters counters() const;
  void set_counters(const NetCounters&);

  // Copies to the host, NCHW or NHWC, of value_type().
  void read_output(Span,
                   Layout = Layout::nchw);  // the last node's value: scores, before the softmax
  void read_input_gradient(Span, Layout = Layout::nchw);  // with input_gradient

  // Without those copies: forward reads the input, or writes the output, in the caller's memory on
  // the device. It must stay and not change until backward has ended, of the output only if
  // backward_reads_output(). False where the plan has another layout or 16 bits, or the memory is
  // not aligned to 64 bytes, and for null: then forward uses the net's own memory, which set_input
  // writes and read_output reads.
  bool place_input(const std::byte*, Layout);
  bool place_output(std::byte*, Layout);
  bool backward_reads_output() const;
  // Copies from or to a Parameter's value, gradient or state, or a part of one. Waits for the
  // stream.
  void read(const std::byte* from, Span);
  void write(std::byte* to, ConstSpan);

  void observe(StepObserver);                // null: no observer
  void observe_gradients(GradientObserver);  // null: no observer
  // Once *stop is set (by a signal, say), forward and backward end before their next step and throw
  // Interrupted. The next forward restores any missing work. null: never.
  void stop_when(const std::atomic<bool>* stop);
  // For an observer of this step's forward: whether the step wrote neither infinity nor NaN.
  bool is_output_finite(const Step&);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace convlab::nets
