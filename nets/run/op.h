// Ops run the steps of a net: one class per kind of layer, behind one interface. Net makes an op
// for each step, gives it the memory it needs, and calls it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "conv/device.h"
#include "conv/types/arithmetic_type.h"
#include "nets/algos.h"
#include "nets/net.h"
#include "nets/parameters.h"
#include "nets/plan/plan.h"

namespace convlab::nets {

// How an input's gradient is to be stored, if at all.
enum class Gradient : std::uint8_t { none, write, add };

// An op's construction arguments. References stay valid as long as the op.
struct OpContext {
  const Graph& graph;
  const Step& step;
  const StepPlan& plan;
  Mode mode;
  DType dtype;
  const NetOptions& options;
  std::uint64_t draws, draw;  // of the net in one iteration, and this step's index among them
  const NetAlgos& algos;
  Device& device;
  Parameters& parameters;     // where the op adds its own
  std::vector<TensorDesc> x;  // in the step's x_layout, a residual in its y_layout
  TensorDesc y;
  std::vector<Gradient> gradient;  // by input

  template <class L>
  const L& layer() const {
    return std::get<L>(graph.nodes()[step.node].layer);
  }
  const LayerOps& ops() const { return device.ops(); }
};

// An op's memory needs, known once it is made.
struct OpNeeds {
  std::size_t forward_workspace = 0, backward_workspace = 0;  // weights packed for one run included
  std::size_t saved = 0;                                      // bytes kept from forward to backward
  // Values of a phase besides inputs and outputs: they count as activations and gradients.
  std::size_t forward_scratch = 0, backward_scratch = 0;
  std::size_t constants = 0;        // bytes that parameters_changed computes and that persist
  std::vector<std::size_t> folded;  // parameters that only parameters_changed reads
  bool backward_data = false, backward_filter = false;  // whether there is work in these passes
  bool filter_last = false;                             // backward_filter comes after backward_data
  bool backward_reads_x = false, backward_reads_y = false;
  std::optional<std::size_t> y_over;  // the input that y may be written over
  std::vector<std::size_t> dx_over;   // inputs, best first, one of whose dx may be written over dy
  std::vector<Gradient> gradient;     // as in the context, but `write` if the op cannot add
};

struct OpMemory {
  std::vector<const std::byte*> x;
  std::byte* y = nullptr;
  std::byte* dy = nullptr;  // backward may change it
  std::vector<std::byte*> dx;
  std::byte* saved = nullptr;
  std::byte* forward_scratch = nullptr;
  std::byte* backward_scratch = nullptr;
  std::byte* constants = nullptr;
  Workspace forward_workspace, backward_workspace;
};

class Op {
 public:
  explicit Op(OpContext context) : context_(std::move(context)) {
    needs_.gradient = context_.gradient;
  }
  virtual ~Op() = default;

  const OpNeeds& needs() const { return needs_; }
  void bind(OpMemory memory) { at_ = std::move(memory); }

  virtual void forward(std::uint64_t iteration, Stream&) = 0;
  // Called in this order, unless filter_last.
  virtual void backward_filter(Stream&) {}
  virtual void backward_data(std::uint64_t /*iteration*/, Stream&) {}
  // In inference, before the next forward: folds and packs the filters that are stored that way.
  virtual void parameters_changed(Stream&) {}

 protected:
  const LayerOps& ops() const { return context_.ops(); }
  // Of parameters, of arrays over channels, and of the layer's arithmetic.
  DType value_type() const { return arithmetic_type(context_.dtype); }
  bool is_half() const { return has_16_bits(context_.dtype); }
  const Parameter& parameter(std::size_t i) const { return context_.parameters[i]; }
  bool training() const { return context_.mode == Mode::training; }
  // Whether any input's gradient is needed.
  bool wants_dx() const;

  OpContext context_;
  OpNeeds needs_;
  OpMemory at_;
};

// Throws InputError when the layer does not support the plan's layouts. The Input has no op.
std::unique_ptr<Op> make_op(OpContext);
std::unique_ptr<Op> make_conv_op(OpContext);
std::unique_ptr<Op> make_separable_op(OpContext);
std::unique_ptr<Op> make_conv_transpose_op(OpContext);
std::unique_ptr<Op> make_recurrent_op(OpContext);
std::unique_ptr<Op> make_layer_norm_op(OpContext);
std::unique_ptr<Op> make_channel_scale_op(OpContext);
std::unique_ptr<Op> make_prelu_op(OpContext);
std::unique_ptr<Op> make_group_norm_op(OpContext);
std::unique_ptr<Op> make_pixel_shuffle_op(OpContext);
std::unique_ptr<Op> make_slice_op(OpContext);
std::unique_ptr<Op> make_channel_shuffle_op(OpContext);
std::unique_ptr<Op> make_resize_op(OpContext);

}  // namespace convlab::nets
