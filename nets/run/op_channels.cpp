// Layers over channels and sizes of images: layer norm, PReLU, scaled, sliced and shuffled
// channels, and resizing.
#include "nets/run/op.h"

namespace convlab::nets {
namespace {

const std::string& name_of(const OpContext& context) {
  return context.graph.nodes()[context.step.node].name;
}

// An op that writes gradients, and never adds to them.
class WritingOp : public Op {
 public:
  explicit WritingOp(OpContext context) : Op(std::move(context)) {
    needs_.backward_data = wants_dx();
    if (wants_dx()) needs_.gradient[0] = Gradient::write;
  }
};

// One that has parameters: their gradients come with dx, which overwrites dy where nobody wants it.
class ChannelParametersOp : public WritingOp {
 public:
  explicit ChannelParametersOp(OpContext context) : WritingOp(std::move(context)) {
    if (!training()) return;
    needs_.backward_data = needs_.backward_reads_x = true;
    needs_.backward_workspace = ops().workspace_bytes(context_.dtype, context_.y);
    if (wants_dx()) needs_.dx_over = {0};
  }

 protected:
  std::byte* dx() const { return at_.dx[0] != nullptr ? at_.dx[0] : at_.dy; }
};

class LayerNormOp : public ChannelParametersOp {
 public:
  explicit LayerNormOp(OpContext context)
      : ChannelParametersOp(std::move(context)),
        desc_{context_.y, context_.layer<LayerNorm>().epsilon} {
    const std::string& name = name_of(context_);
    scale_ = context_.parameters.add(name + ".weight", {desc_.x.c}, {Initial::Kind::one});
    shift_ = context_.parameters.add(name + ".bias", {desc_.x.c}, {});
  }
  void forward(std::uint64_t, Stream& stream) override {
    ops().layer_norm_forward(context_.dtype, desc_, at_.x[0], parameter(scale_).value,
                             parameter(shift_).value, at_.y, stream);
  }
  void backward_data(std::uint64_t, Stream& stream) override {
    ops().layer_norm_backward(context_.dtype, desc_,
                              {at_.x[0], at_.dy, parameter(scale_).value, dx(),
                               parameter(scale_).gradient, parameter(shift_).gradient},
                              at_.backward_workspace, stream);
  }

 private:
  LayerNormDesc desc_;
  std::size_t scale_ = 0, shift_ = 0;
};

class ChannelScaleOp : public ChannelParametersOp {
 public:
  explicit ChannelScaleOp(OpContext context) : ChannelParametersOp(std::move(context)) {
    scale_ = context_.parameters.add(
        name_of(context_), {context_.y.c, 1, 1},
        {.kind = Initial::Kind::constant, .value = context_.layer<ChannelScale>().initial});
    needs_.y_over = 0;
  }
  void forward(std::uint64_t, Stream& stream) override {
    ops().scale_channels_forward(context_.dtype, context_.y, at_.x[0], parameter(scale_).value,
                                 at_.y, stream);
  }
  void backward_data(std::uint64_t, Stream& stream) override {
    ops().scale_channels_backward(context_.dtype, context_.y, at_.x[0], at_.dy,
                                  parameter(scale_).value, dx(), parameter(scale_).gradient,
                                  at_.backward_workspace, stream);
  }

 private:
  std::size_t scale_ = 0;
};

class PReluOp : public ChannelParametersOp {
 public:
  explicit PReluOp(OpContext context) : ChannelParametersOp(std::move(context)) {
    slope_ = context_.parameters.add(
        name_of(context_) + ".weight", {context_.y.c},
        {.kind = Initial::Kind::constant, .value = context_.layer<PRelu>().initial});
    needs_.y_over = 0;
  }
  void forward(std::uint64_t, Stream& stream) override {
    ops().prelu_forward(context_.dtype, context_.y, at_.x[0], parameter(slope_).value, at_.y,
                        stream);
  }
  void backward_data(std::uint64_t, Stream& stream) override {
    ops().prelu_backward(context_.dtype, context_.y, at_.x[0], at_.dy, parameter(slope_).value,
                         dx(), parameter(slope_).gradient, at_.backward_workspace, stream);
  }

 private:
  std::size_t slope_ = 0;
};

class SliceOp : public WritingOp {
 public:
  using WritingOp::WritingOp;
  void forward(std::uint64_t, Stream& stream) override {
    const auto& [first, channels] = context_.layer<Slice>();
    ops().copy_channels(context_.dtype, {context_.x[0], context_.y, first, 0, channels}, at_.x[0],
                        at_.y, stream);
  }
  void backward_data(std::uint64_t, Stream& stream) override {
    const auto& [first, channels] = context_.layer<Slice>();
    const TensorDesc& x = context_.x[0];
    ops().zero({at_.dx[0], std::size_t(x.elements() * size_of(context_.dtype))}, stream);
    ops().copy_channels(context_.dtype, {context_.y, x, 0, first, channels}, at_.dy, at_.dx[0],
                        stream);
  }
};

class ChannelShuffleOp : public WritingOp {
 public:
  using WritingOp::WritingOp;
  void forward(std::uint64_t, Stream& stream) override {
    ops().shuffle_channels(context_.dtype, context_.y, groups(), at_.x[0], at_.y, stream);
  }
  void backward_data(std::uint64_t, Stream& stream) override {
    ops().shuffle_channels(context_.dtype, context_.y, context_.y.c / groups(), at_.dy, at_.dx[0],
                           stream);
  }

 private:
  std::int64_t groups() const { return context_.layer<ChannelShuffle>().groups; }
};

class ResizeOp : public WritingOp {
 public:
  explicit ResizeOp(OpContext context)
      : WritingOp(std::move(context)),
        resize_{context_.layer<Resize>().kind, context_.x[0], context_.y} {}
  void forward(std::uint64_t, Stream& stream) override {
    ops().resize_forward(context_.dtype, resize_, at_.x[0], at_.y, stream);
  }
  void backward_data(std::uint64_t, Stream& stream) override {
    ops().resize_backward(context_.dtype, resize_, at_.dy, at_.dx[0], stream);
  }

 private:
  ResizeDesc resize_;
};

}  // namespace

std::unique_ptr<Op> make_layer_norm_op(OpContext context) {
  return std::make_unique<LayerNormOp>(std::move(context));
}
std::unique_ptr<Op> make_channel_scale_op(OpContext context) {
  return std::make_unique<ChannelScaleOp>(std::move(context));
}
std::unique_ptr<Op> make_prelu_op(OpContext context) {
  return std::make_unique<PReluOp>(std::move(context));
}
std::unique_ptr<Op> make_slice_op(OpContext context) {
  return std::make_unique<SliceOp>(std::move(context));
}
std::unique_ptr<Op> make_channel_shuffle_op(OpContext context) {
  return std::make_unique<ChannelShuffleOp>(std::move(context));
}
std::unique_ptr<Op> make_resize_op(OpContext context) {
  return std::make_unique<ResizeOp>(std::move(context));
}

}  // namespace convlab::nets
