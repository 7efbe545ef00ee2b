// Layers that other layers' operations compute, on views of NCHW tensors.
#include "nets/run/arena.h"
#include "nets/run/op.h"

namespace convlab::nets {
namespace {

// Batch norm of one image whose channels are the groups of all images, without scale and shift;
// then these, as a batch norm whose statistics are 0 and 1. The backward pass normalises again.
class GroupNormOp : public Op {
 public:
  explicit GroupNormOp(OpContext context) : Op(std::move(context)) {
    const auto& layer = context_.layer<GroupNorm>();
    const TensorDesc& y = context_.y;
    groups_ = {{1, y.n * layer.groups, y.c / layer.groups * y.h, y.w}, layer.epsilon};
    channels_ = {y, 0};
    const std::string& name = context_.graph.nodes()[context_.step.node].name;
    scale_ = context_.parameters.add(name + ".weight", {y.c}, {Initial::Kind::one});
    shift_ = context_.parameters.add(name + ".bias", {y.c}, {});
    array_bytes_ = padded(std::size_t(std::max(groups_.x.c, y.c) * size_of(value_type())));
    needs_.forward_workspace = std::max(ops().workspace_bytes(context_.dtype, groups_.x),
                                        ops().workspace_bytes(context_.dtype, y));
    needs_.forward_scratch = arrays * array_bytes_;
    if (!training()) return;
    needs_.backward_data = needs_.backward_reads_x = true;
    needs_.backward_workspace = needs_.forward_workspace;
    needs_.backward_scratch =
        needs_.forward_scratch + padded(std::size_t(y.elements() * size_of(context_.dtype)));
    if (wants_dx()) needs_.gradient[0] = Gradient::write;
  }

  void forward(std::uint64_t, Stream& stream) override {
    const Arrays a = fill(at_.forward_scratch, stream);
    normalise(a, at_.y, at_.forward_workspace, stream);
    ops().batch_norm_inference(
        context_.dtype, channels_,
        {at_.y, nullptr, parameter(scale_).value, parameter(shift_).value, at_.y}, a.zeros, a.ones,
        at_.forward_workspace, stream);
  }

  void backward_data(std::uint64_t, Stream& stream) override {
    const Arrays a = fill(at_.backward_scratch, stream);
    std::byte* const normalised = at_.backward_scratch + arrays * array_bytes_;
    normalise(a, normalised, at_.backward_workspace, stream);
    ops().bias_backward(context_.dtype, context_.y, at_.dy, parameter(shift_).gradient,
                        at_.backward_workspace, stream);
    ops().scale_channels_backward(context_.dtype, context_.y, normalised, at_.dy,
                                  parameter(scale_).value, at_.dy, parameter(scale_).gradient,
                                  at_.backward_workspace, stream);
    BatchNormBackward io;
    io.x = at_.x[0], io.dy = at_.dy;
    io.scale = a.ones, io.shift = a.zeros;
    io.mean = a.mean, io.inverse_deviation = a.inverse_deviation;
    io.dx = at_.dx[0] != nullptr ? at_.dx[0] : at_.dy;
    io.dscale = a.unused, io.dshift = a.unused_too;
    ops().batch_norm_backward(context_.dtype, groups_, io, at_.backward_workspace, stream);
  }

 private:
  static constexpr std::size_t arrays = 6;
  struct Arrays {
    std::byte *zeros, *ones, *mean, *inverse_deviation, *unused, *unused_too;
  };

  Arrays fill(std::byte* scratch, Stream& stream) const {
    const auto array = [&](std::size_t i) { return scratch + i * array_bytes_; };
    const Arrays a{array(0), array(1), array(2), array(3), array(4), array(5)};
    ops().zero({scratch, arrays * array_bytes_}, stream);
    const LayerActivation one{LayerActivation::Kind::clip, 1, 1};
    ops().activation_forward(value_type(), one, {1, std::max(groups_.x.c, context_.y.c), 1, 1},
                             a.zeros, a.ones, stream);
    return a;
  }

  void normalise(const Arrays& a, std::byte* to, Workspace workspace, Stream& stream) const {
    ops().batch_norm_training(context_.dtype, groups_, {at_.x[0], nullptr, a.ones, a.zeros, to},
                              {0, a.unused, a.unused_too, a.mean, a.inverse_deviation}, workspace,
                              stream);
  }

  BatchNormDesc groups_, channels_;
  std::size_t scale_ = 0, shift_ = 0, array_bytes_ = 0;
};

// From C f f H W (the image by the image) to C H f W f: the rows of a block's channels one after
// the other, C H (f f) W, then the f values of each pixel side by side.
class PixelShuffleOp : public Op {
 public:
  explicit PixelShuffleOp(OpContext context) : Op(std::move(context)) {
    const TensorDesc &x = context_.x[0], &y = context_.y;
    const std::int64_t f = context_.layer<PixelShuffle>().factor;
    block_ = f * f;
    rows_ = {y.n * y.c, block_ * x.h, 1, x.w};
    apart_ = {y.n * y.c * y.h, f, 1, x.w, Layout::nchw};
    side_by_side_ = apart_;
    side_by_side_.layout = Layout::nhwc;
    const std::size_t bytes = std::size_t(y.elements() * size_of(context_.dtype));
    needs_.forward_scratch = bytes;
    needs_.backward_data = wants_dx();
    if (!wants_dx()) return;
    needs_.backward_scratch = bytes;
    needs_.gradient[0] = Gradient::write;
  }
  void forward(std::uint64_t, Stream& stream) override {
    std::byte* const between = at_.forward_scratch;
    ops().shuffle_channels(context_.dtype, rows_, block_, at_.x[0], between, stream);
    ops().convert_layout(context_.dtype, apart_, between, side_by_side_, at_.y, stream);
  }
  void backward_data(std::uint64_t, Stream& stream) override {
    std::byte* const between = at_.backward_scratch;
    ops().convert_layout(context_.dtype, side_by_side_, at_.dy, apart_, between, stream);
    ops().shuffle_channels(context_.dtype, rows_, rows_.c / block_, between, at_.dx[0], stream);
  }

 private:
  std::int64_t block_ = 1;
  TensorDesc rows_, apart_, side_by_side_;
};

}  // namespace

std::unique_ptr<Op> make_group_norm_op(OpContext context) {
  return std::make_unique<GroupNormOp>(std::move(context));
}
std::unique_ptr<Op> make_pixel_shuffle_op(OpContext context) {
  return std::make_unique<PixelShuffleOp>(std::move(context));
}

}  // namespace convlab::nets
