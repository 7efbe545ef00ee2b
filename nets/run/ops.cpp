// Layers as thin classes over LayerOps; op_channels.cpp has more of them.
#include <fmt/format.h>

#include <algorithm>

#include "conv/error.h"
#include "conv/math/relu.h"
#include "nets/run/arena.h"
#include "nets/run/half_values.h"
#include "nets/run/op.h"

namespace convlab::nets {
namespace {

// Fully connected: y = x w^T + b over rows of C*H*W values. Those of 16 bits are widened, since the
// weights are f32, and each result is rounded once.
class LinearOp : public Op {
 public:
  explicit LinearOp(OpContext context) : Op(std::move(context)) {
    const TensorDesc& x = context_.x[0];
    rows_ = x.n, inputs_ = x.c * x.h * x.w, outputs_ = context_.y.c;
    const std::string& name = context_.graph.nodes()[context_.step.node].name;
    weight_ = context_.parameters.add(name + ".weight", {outputs_, inputs_},
                                      initial_weights(context_.graph, context_.step.node));
    bias_ = context_.parameters.add(name + ".bias", {outputs_}, {});
    needs_.forward_workspace = needs_.backward_workspace =
        ops().workspace_bytes(context_.dtype, context_.y);
    needs_.backward_filter = needs_.backward_reads_x = training();
    needs_.backward_data = wants_dx();
    if (!is_half()) return;
    wide_y_at_ = wide_bytes(rows_ * inputs_);
    needs_.forward_scratch = wide_y_at_ + wide_bytes(rows_ * outputs_);
    if (training()) needs_.backward_scratch = needs_.forward_scratch;
    if (needs_.gradient[0] == Gradient::add) needs_.gradient[0] = Gradient::write;
  }

  void forward(std::uint64_t, Stream& stream) override {
    const std::byte* const x = widened(at_.x[0], rows_ * inputs_, at_.forward_scratch, stream);
    std::byte* const y = is_half() ? at_.forward_scratch + wide_y_at_ : at_.y;
    ops().gemm(value_type(), {.m = rows_, .n = outputs_, .k = inputs_, .transpose_b = true}, x,
               parameter(weight_).value, y, stream);
    ops().bias_forward(value_type(), context_.y, y, parameter(bias_).value, y,
                       at_.forward_workspace, stream);
    if (is_half()) round_values(ops(), context_.dtype, y, at_.y, rows_ * outputs_, stream);
  }
  void backward_filter(Stream& stream) override {
    ops().bias_backward(context_.dtype, context_.y, at_.dy, parameter(bias_).gradient,
                        at_.backward_workspace, stream);
    const std::byte* const x = widened(at_.x[0], rows_ * inputs_, at_.backward_scratch, stream);
    ops().gemm(value_type(), {.m = outputs_, .n = inputs_, .k = rows_, .transpose_a = true},
               wide_dy(stream), x, parameter(weight_).gradient, stream);
  }
  void backward_data(std::uint64_t, Stream& stream) override {
    const bool add = needs_.gradient[0] == Gradient::add;
    std::byte* const dx = is_half() ? at_.backward_scratch : at_.dx[0];
    ops().gemm(value_type(), {.m = rows_, .n = inputs_, .k = outputs_, .accumulate = add},
               wide_dy(stream), parameter(weight_).value, dx, stream);
    if (is_half()) round_values(ops(), context_.dtype, dx, at_.dx[0], rows_ * inputs_, stream);
  }

 private:
  static std::size_t wide_bytes(std::int64_t count) {
    return padded(std::size_t(count) * sizeof(float));
  }
  // These values, or a copy of those of 16 bits.
  const std::byte* widened(const std::byte* from, std::int64_t count, std::byte* to,
                           Stream& stream) const {
    if (!is_half()) return from;
    widen_values(ops(), context_.dtype, from, to, count, stream);
    return to;
  }
  const std::byte* wide_dy(Stream& stream) const {
    return widened(at_.dy, rows_ * outputs_, at_.backward_scratch + wide_y_at_, stream);
  }

  std::int64_t rows_ = 1, inputs_ = 1, outputs_ = 1;
  std::size_t wide_y_at_ = 0;  // offset in the scratch; x, or dx, is at its start
  std::size_t weight_ = 0, bias_ = 0;
};

PoolDesc pool_of(const OpContext& context) {
  const Layer& layer = context.graph.nodes()[context.step.node].layer;
  if (std::holds_alternative<GlobalAvgPool>(layer)) return global_average_pool(context.x[0]);
  const Pool& pool = std::get<Pool>(layer);
  PoolDesc desc;
  desc.kind = pool.kind == Pool::Kind::max ? PoolKind::max : PoolKind::average;
  desc.x = context.x[0];
  desc.y = context.y;
  desc.window_h = pool.kernel.h, desc.window_w = pool.kernel.w;
  desc.stride_h = pool.stride.h, desc.stride_w = pool.stride.w;
  desc.pad_h = pool.pad.h, desc.pad_w = pool.pad.w;
  desc.pad_end_h = pool.end().h, desc.pad_end_w = pool.end().w;
  desc.count_padding = pool.count_padding;
  desc.x_depth = context.graph.nodes()[context.step.inputs[0]].shape.d;
  desc.y_depth = context.graph.nodes()[context.step.node].shape.d;
  desc.window_d = pool.depth.kernel;
  desc.stride_d = pool.depth.stride;
  desc.pad_d = pool.depth.pad;
  desc.pad_end_d = pool.depth.end();
  return desc;
}

class PoolOp : public Op {
 public:
  explicit PoolOp(OpContext context) : Op(std::move(context)), pool_(pool_of(context_)) {
    validate(pool_);
    needs_.backward_data = wants_dx();
    if (wants_dx()) {
      needs_.saved = std::size_t(pool_.index_bytes());
      needs_.gradient[0] = Gradient::write;
    }
  }
  void forward(std::uint64_t, Stream& stream) override {
    ops().pool_forward(context_.dtype, pool_, at_.x[0], at_.y, at_.saved, stream);
  }
  void backward_data(std::uint64_t, Stream& stream) override {
    ops().pool_backward(context_.dtype, pool_, at_.dy, at_.saved, at_.dx[0], stream);
  }

 private:
  PoolDesc pool_;
};

// Includes the fused residual and ReLU. With NetOptions::all_reduce_sums both passes stop for the
// whole batch: this worker's sums go to the host, all workers' sums come back to the device.
class BatchNormOp : public Op {
 public:
  explicit BatchNormOp(OpContext context) : Op(std::move(context)) {
    const Step& step = context_.step;
    desc_ = {context_.x[0], context_.layer<BatchNorm>().epsilon, step.residual,
             step.activation.has_value()};
    const std::string& name = context_.graph.nodes()[step.node].name;
    const std::int64_t channels = desc_.x.c;
    scale_ = context_.parameters.add(name + ".weight", {channels}, {Initial::Kind::one});
    context_.parameters.add(name + ".bias", {channels}, {});
    context_.parameters.add(name + ".running_mean", {channels}, {}, false);
    context_.parameters.add(name + ".running_var", {channels}, {Initial::Kind::one}, false);
    needs_.forward_workspace = needs_.backward_workspace =
        ops().workspace_bytes(context_.dtype, desc_.x);
    if (!training()) {
      if (step.residual) needs_.y_over = 1;
      return;
    }
    if (synchronised()) {
      shared_.resize(std::size_t(2 * channels + 1));
      needs_.forward_scratch = needs_.backward_scratch = pairs().size_bytes();
    }
    deviation_at_ = padded(std::size_t(channels * size_of(value_type())));
    needs_.saved = 2 * deviation_at_;
    needs_.backward_data = needs_.backward_reads_x = true;
    needs_.backward_reads_y = step.residual && step.activation;
    for (Gradient& g : needs_.gradient)
      if (g == Gradient::add) g = Gradient::write;
    // The residual's gradient first: a shortcut passes it on.
    if (context_.gradient[0] != Gradient::none)
      needs_.dx_over = step.residual ? std::vector<std::size_t>{1, 0} : std::vector<std::size_t>{0};
  }

  void forward(std::uint64_t, Stream& stream) override {
    const BatchNormForward io{at_.x[0], desc_.residual ? at_.x[1] : nullptr, value(0), value(1),
                              at_.y};
    if (!training())
      return ops().batch_norm_inference(context_.dtype, desc_, io, value(2), value(3),
                                        at_.forward_workspace, stream);
    BatchNormStatistics statistics{context_.layer<BatchNorm>().momentum, value(2), value(3),
                                   at_.saved, at_.saved + deviation_at_};
    if (synchronised()) {
      auto* const moments = reinterpret_cast<double*>(at_.forward_scratch);
      ops().batch_norm_moments(context_.dtype, desc_.x, io.x, moments, at_.forward_workspace,
                               stream);
      statistics.whole = over_all_workers(stream, moments, [this] { combine_moments(); });
    }
    ops().batch_norm_training(context_.dtype, desc_, io, statistics, at_.forward_workspace, stream);
  }

  // All at once: dx needs the sums that are the parameters' gradients. An unwanted dx overwrites
  // dy.
  void backward_data(std::uint64_t, Stream& stream) override {
    BatchNormBackward io;
    io.x = at_.x[0];
    io.y = at_.y;
    io.dy = at_.dy;
    io.scale = value(0);
    io.shift = value(1);
    io.mean = at_.saved;
    io.inverse_deviation = at_.saved + deviation_at_;
    io.dx = at_.dx[0] != nullptr ? at_.dx[0] : at_.dy;
    io.dresidual = desc_.residual ? at_.dx[1] : nullptr;
    io.dscale = parameter(scale_).gradient;
    io.dshift = parameter(scale_ + 1).gradient;
    if (synchronised()) {
      auto* const sums = reinterpret_cast<double*>(at_.backward_scratch);
      ops().batch_norm_gradient_sums(context_.dtype, desc_, io, sums, at_.backward_workspace,
                                     stream);
      io.whole = over_all_workers(stream, sums, [this] { all_reduce(pairs()); });
    }
    ops().batch_norm_backward(context_.dtype, desc_, io, at_.backward_workspace, stream);
  }

 private:
  std::byte* value(std::size_t i) const { return parameter(scale_ + i).value; }

  bool synchronised() const { return training() && context_.options.all_reduce_sums != nullptr; }
  void all_reduce(std::span<double> sums) const { context_.options.all_reduce_sums(sums); }

  std::span<double> pairs() { return std::span(shared_).first(shared_.size() - 1); }

  // Replaces this worker's pairs on the device by the whole batch's. `combine` does so on the host.
  template <class Combine>
  WholeBatch over_all_workers(Stream& stream, double* on_device, Combine combine) {
    auto* const device = reinterpret_cast<std::byte*>(on_device);
    const Span host = std::as_writable_bytes(pairs());
    context_.device.copy_to_host(host, device, stream);
    combine();
    context_.device.copy_to_device(device, host, stream);
    return {on_device, std::int64_t(shared_.back())};
  }

  // Sums of x and of x^2 add up over workers; means and variances do not. The variance comes back
  // as a difference. In double that costs (mean / deviation)^2 units in the last place, less than
  // f32 values have lost beside such a mean.
  void combine_moments() {
    const std::span<double> mean = pairs().first(std::size_t(desc_.x.c));
    const std::span<double> variance = pairs().last(mean.size());
    double& count = shared_.back();
    count = double(desc_.x.n * desc_.x.h * desc_.x.w);
    for (std::size_t c = 0; c < mean.size(); ++c) {
      variance[c] = count * (variance[c] + mean[c] * mean[c]);
      mean[c] *= count;
    }
    all_reduce(shared_);
    for (std::size_t c = 0; c < mean.size(); ++c) {
      mean[c] /= count;
      variance[c] = relu(variance[c] / count - mean[c] * mean[c]);
    }
  }

  BatchNormDesc desc_;
  std::size_t scale_ = 0;  // index of the first of four parameters
  std::size_t deviation_at_ = 0;
  std::vector<double> shared_;  // on the host: WholeBatch's pairs, then its count
};

class LrnOp : public Op {
 public:
  explicit LrnOp(OpContext context) : Op(std::move(context)) {
    const auto& layer = context_.layer<LocalResponseNorm>();
    desc_ = {context_.x[0], layer.size, layer.alpha, layer.beta, layer.k};
    needs_.forward_workspace = needs_.backward_workspace =
        ops().workspace_bytes(context_.dtype, desc_.x);
    needs_.backward_data = needs_.backward_reads_x = wants_dx();
    if (wants_dx()) needs_.gradient[0] = Gradient::write;
  }
  void forward(std::uint64_t, Stream& stream) override {
    ops().lrn_forward(context_.dtype, desc_, at_.x[0], at_.y, at_.forward_workspace, stream);
  }
  void backward_data(std::uint64_t, Stream& stream) override {
    ops().lrn_backward(context_.dtype, desc_, at_.x[0], at_.dy, at_.dx[0], at_.backward_workspace,
                       stream);
  }

 private:
  LrnDesc desc_;
};

// One input, one output, in place if memory allows.
class ElementwiseOp : public Op {
 public:
  explicit ElementwiseOp(OpContext context) : Op(std::move(context)) {
    needs_.y_over = 0;
    needs_.backward_data = wants_dx();
    if (!wants_dx()) return;
    needs_.dx_over = {0};
    needs_.gradient[0] = Gradient::write;
  }
};

class ActivationOp : public ElementwiseOp {
 public:
  explicit ActivationOp(OpContext context) : ElementwiseOp(std::move(context)) {
    kind_ = context_.layer<Activation>().kind;
    (derivative_reads_x(kind_) ? needs_.backward_reads_x : needs_.backward_reads_y) = wants_dx();
  }
  void forward(std::uint64_t, Stream& stream) override {
    ops().activation_forward(context_.dtype, kind_, context_.y, at_.x[0], at_.y, stream);
  }
  void backward_data(std::uint64_t, Stream& stream) override {
    const std::byte* const value = derivative_reads_x(kind_) ? at_.x[0] : at_.y;
    ops().activation_backward(context_.dtype, kind_, context_.y, value, at_.dy, at_.dx[0], stream);
  }

 private:
  ActivationKind kind_;
};

class LayerActivationOp : public ElementwiseOp {
 public:
  explicit LayerActivationOp(OpContext context) : ElementwiseOp(std::move(context)) {
    needs_.backward_reads_x = wants_dx();
  }
  void forward(std::uint64_t, Stream& stream) override {
    ops().activation_forward(context_.dtype, context_.layer<LayerActivation>(), context_.y,
                             at_.x[0], at_.y, stream);
  }
  void backward_data(std::uint64_t, Stream& stream) override {
    ops().activation_backward(context_.dtype, context_.layer<LayerActivation>(), context_.y,
                              at_.x[0], at_.dy, at_.dx[0], stream);
  }
};

// In training only; backward repeats forward's draws.
class DropoutOp : public ElementwiseOp {
 public:
  using ElementwiseOp::ElementwiseOp;
  void forward(std::uint64_t iteration, Stream& stream) override {
    ops().dropout(context_.dtype, draw(iteration), at_.x[0], at_.y, stream);
  }
  void backward_data(std::uint64_t iteration, Stream& stream) override {
    ops().dropout(context_.dtype, draw(iteration), at_.dy, at_.dx[0], stream);
  }

 private:
  DropoutDesc draw(std::uint64_t iteration) const {
    const auto& layer = context_.layer<Dropout>();
    return {context_.x[0],
            layer.p,
            context_.options.dropout_seed,
            iteration * context_.draws + context_.draw,
            context_.options.first_image,
            layer.whole_images};
  }
};

class GateOp : public Op {
 public:
  explicit GateOp(OpContext context) : Op(std::move(context)), gate_{context_.x[0]} {
    needs_.y_over = 0;
    needs_.backward_data = needs_.backward_reads_x = wants_dx();
    for (Gradient& g : needs_.gradient)
      if (g == Gradient::add) g = Gradient::write;
    if (context_.gradient[0] != Gradient::none) needs_.dx_over = {0};
  }
  void forward(std::uint64_t, Stream& stream) override {
    ops().gate_forward(context_.dtype, gate_, at_.x[0], at_.x[1], at_.y, stream);
  }
  void backward_data(std::uint64_t, Stream& stream) override {
    ops().gate_backward(context_.dtype, gate_, at_.x[0], at_.x[1], at_.dy, at_.dx[0], at_.dx[1],
                        stream);
  }

 private:
  GateDesc gate_;
};

class PadChannelsOp : public Op {
 public:
  explicit PadChannelsOp(OpContext context) : Op(std::move(context)) {
    needs_.backward_data = wants_dx();
    if (wants_dx()) needs_.gradient[0] = Gradient::write;
  }
  void forward(std::uint64_t, Stream& stream) override {
    const TensorDesc &x = context_.x[0], &y = context_.y;
    ops().zero({at_.y, std::size_t(y.elements() * size_of(context_.dtype))}, stream);
    ops().copy_channels(context_.dtype, {x, y, 0, 0, x.c}, at_.x[0], at_.y, stream);
  }
  void backward_data(std::uint64_t, Stream& stream) override {
    const TensorDesc &x = context_.x[0], &y = context_.y;
    ops().copy_channels(context_.dtype, {y, x, 0, 0, x.c}, at_.dy, at_.dx[0], stream);
  }
};

class AddOp : public Op {
 public:
  explicit AddOp(OpContext context) : Op(std::move(context)) {
    needs_.backward_data = wants_dx();
    // The gradient of a term that occurs twice grows while dy is still read.
    const std::vector<NodeId>& terms = context_.step.inputs;
    for (std::size_t i = 0; i < terms.size(); ++i)
      if (std::count(terms.begin(), terms.end(), terms[i]) == 1) needs_.dx_over.push_back(i);
  }
  void forward(std::uint64_t, Stream& stream) override {
    for (std::size_t i = 1; i < at_.x.size(); ++i)
      ops().add(context_.dtype, context_.y, i == 1 ? at_.x[0] : at_.y, at_.x[i], at_.y, stream);
  }
  // Each term's gradient is dy; one of them may already share its buffer.
  void backward_data(std::uint64_t, Stream& stream) override {
    const TensorDesc& desc = context_.y;
    for (std::size_t i = 0; i < at_.dx.size(); ++i) {
      if (context_.gradient[i] == Gradient::add)
        ops().add(context_.dtype, desc, at_.dx[i], at_.dy, at_.dx[i], stream);
      else if (at_.dx[i] != nullptr && at_.dx[i] != at_.dy)
        ops().convert_layout(context_.dtype, desc, at_.dy, desc, at_.dx[i], stream);
    }
  }
};

class ConcatOp : public Op {
 public:
  explicit ConcatOp(OpContext context) : Op(std::move(context)) {
    needs_.backward_data = wants_dx();
    for (Gradient& g : needs_.gradient)
      if (g == Gradient::add) g = Gradient::write;
  }
  // In order: the last part's copy zeroes the padding lanes.
  void forward(std::uint64_t, Stream& stream) override {
    std::int64_t channel = 0;
    for (std::size_t i = 0; i < at_.x.size(); channel += context_.x[i++].c)
      ops().copy_channels(context_.dtype, {context_.x[i], context_.y, 0, channel, context_.x[i].c},
                          at_.x[i], at_.y, stream);
  }
  void backward_data(std::uint64_t, Stream& stream) override {
    std::int64_t channel = 0;
    for (std::size_t i = 0; i < at_.dx.size(); channel += context_.x[i++].c)
      if (at_.dx[i] != nullptr)
        ops().copy_channels(context_.dtype,
                            {context_.y, context_.x[i], channel, 0, context_.x[i].c}, at_.dy,
                            at_.dx[i], stream);
  }
};

void require_layouts(const OpContext& context, std::string_view what) {
  for (const TensorDesc& x : context.x)
    if (x.layout != context.y.layout)
      throw InputError(fmt::format("{} needs one layout, the plan has x in {} and y in {}", what,
                                   to_string(x.layout), to_string(context.y.layout)));
}

// Makes each layer's op, once its layouts are checked.
struct Maker {
  OpContext& context;

  template <class T>
  std::unique_ptr<Op> in_one_layout(std::string_view what) {
    require_layouts(context, what);
    return std::make_unique<T>(std::move(context));
  }
  void require_nchw(std::string_view what) const {
    require_layouts(context, what);
    if (context.y.layout != Layout::nchw)
      throw InputError(
          fmt::format("{} works in nchw, the plan has {}", what, to_string(context.y.layout)));
  }
  std::unique_ptr<Op> operator()(const Input&) { return nullptr; }
  std::unique_ptr<Op> operator()(const Conv&) { return make_conv_op(std::move(context)); }
  std::unique_ptr<Op> operator()(const Linear&) {
    require_nchw("a fully connected layer");
    return std::make_unique<LinearOp>(std::move(context));
  }
  std::unique_ptr<Op> operator()(const Pool&) { return in_one_layout<PoolOp>("pooling"); }
  std::unique_ptr<Op> operator()(const GlobalAvgPool&) { return in_one_layout<PoolOp>("pooling"); }
  std::unique_ptr<Op> operator()(const BatchNorm&) {
    return in_one_layout<BatchNormOp>("batch norm");
  }
  std::unique_ptr<Op> operator()(const LocalResponseNorm&) { return in_one_layout<LrnOp>("lrn"); }
  std::unique_ptr<Op> operator()(const Activation&) {
    return in_one_layout<ActivationOp>("an activation");
  }
  std::unique_ptr<Op> operator()(const LayerActivation&) {
    return in_one_layout<LayerActivationOp>("an activation");
  }
  std::unique_ptr<Op> operator()(const PRelu&) {
    require_layouts(context, "an activation");
    return make_prelu_op(std::move(context));
  }
  std::unique_ptr<Op> operator()(const GroupNorm&) {
    require_nchw("group norm");
    return make_group_norm_op(std::move(context));
  }
  std::unique_ptr<Op> operator()(const PixelShuffle&) {
    require_nchw("a pixel shuffle");
    return make_pixel_shuffle_op(std::move(context));
  }
  std::unique_ptr<Op> operator()(const Dropout&) { return in_one_layout<DropoutOp>("dropout"); }
  std::unique_ptr<Op> operator()(const Gate&) { return in_one_layout<GateOp>("a gate"); }
  std::unique_ptr<Op> operator()(const PadChannels&) {
    return std::make_unique<PadChannelsOp>(std::move(context));
  }
  std::unique_ptr<Op> operator()(const ConvTranspose&) {
    return make_conv_transpose_op(std::move(context));
  }
  std::unique_ptr<Op> operator()(const LayerNorm&) {
    require_layouts(context, "layer norm");
    return make_layer_norm_op(std::move(context));
  }
  std::unique_ptr<Op> operator()(const ChannelScale&) {
    require_layouts(context, "scaling");
    return make_channel_scale_op(std::move(context));
  }
  std::unique_ptr<Op> operator()(const Slice&) { return make_slice_op(std::move(context)); }
  std::unique_ptr<Op> operator()(const ChannelShuffle&) {
    require_layouts(context, "a shuffle");
    return make_channel_shuffle_op(std::move(context));
  }
  std::unique_ptr<Op> operator()(const Resize&) {
    require_layouts(context, "resizing");
    return make_resize_op(std::move(context));
  }
  std::unique_ptr<Op> operator()(const Recurrent&) {
    require_nchw("a recurrent layer");
    return make_recurrent_op(std::move(context));
  }
  std::unique_ptr<Op> operator()(const Add&) { return in_one_layout<AddOp>("an addition"); }
  std::unique_ptr<Op> operator()(const Concat&) {
    return std::make_unique<ConcatOp>(std::move(context));
  }
};

}  // namespace

bool Op::wants_dx() const {
  return std::any_of(context_.gradient.begin(), context_.gradient.end(),
                     [](Gradient g) { return g != Gradient::none; });
}

std::unique_ptr<Op> make_op(OpContext context) {
  const Layer& layer = context.graph.nodes()[context.step.node].layer;
  return std::visit(Maker{context}, layer);
}

}  // namespace convlab::nets
