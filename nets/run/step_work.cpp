#include "nets/run/step_work.h"

#include <algorithm>
#include <variant>

#include "conv/types/arithmetic_type.h"

namespace convlab::nets {
namespace {

// Fractions of the read bandwidth, and of the FLOP peak, that these operations reach.
constexpr double streaming = 1, transposing = 0.6, windows = 0.6, powers = 0.15,
                 matrix_product = 0.7;

// One phase for each operation that a layer calls, in bytes read and written.
class Work {
 public:
  Work(const Graph& graph, const Step& step, Mode mode, DType dtype, Layout x, Layout y,
       const std::vector<bool>& wants_dx)
      : graph_(graph),
        step_(step),
        training_(mode == Mode::training),
        size_(double(size_of(dtype))),
        backward_(training_ && std::count(wants_dx.begin(), wants_dx.end(), true) > 0),
        wants_dx_(wants_dx) {
    const Node& node = graph.nodes()[step.node];
    x_ = step.inputs.empty() ? 0 : bytes(graph.nodes()[step.inputs[0]].shape, x);
    y_ = bytes(node.shape, y);
    filter_ = double(graph.parameters(node)) * double(size_of(arithmetic_type(dtype)));
  }

  WorkEstimate result() {
    std::visit([&](const auto& layer) { add(layer); }, graph_.nodes()[step_.node].layer);
    // Weight, gradient and velocity are read; weight and velocity are written.
    if (training_ && filter_ > 0) move(3 * filter_, 2 * filter_);
    return work_;
  }

 private:
  double bytes(const Shape& shape, Layout layout) const {
    return double(tensor_desc(shape, layout).elements()) * size_;
  }
  void move(double read, double written, double efficiency = streaming) {
    work_.phases.push_back({"", 0, read, written, efficiency});
  }

  void add(const Input&) {}
  // ReLU's derivative in place, from y; dy's sum.
  void add(const Conv& layer) {
    if (!training_) return;
    if (step_.activation) move(2 * y_, y_);
    if (layer.bias) move(y_, 0);
  }
  // Forward, dx and dw each take the same number of products.
  void add(const Linear&) {
    const Node& node = graph_.nodes()[step_.node];
    const double flops = 2.0 * double(node.shape.n) * double(graph_.multiply_adds(node));
    const auto product = [&](double read, double written) {
      work_.phases.push_back({"", flops, read, written, matrix_product});
    };
    product(x_ + filter_, y_);
    move(y_, y_);
    if (training_) {
      move(y_, 0);
      product(x_ + y_, filter_);
    }
    if (backward_) product(y_ + filter_, x_);
  }
  void add(const Pool& layer) {
    const double index = training_ && layer.kind == Pool::Kind::max ? y_ / size_ : 0;
    move(x_, y_ + index, windows);
    if (backward_) move(y_ + index, x_, windows);
  }
  void add(const GlobalAvgPool&) {
    move(x_, y_, windows);
    if (backward_) move(y_, x_, windows);
  }
  // Statistics first, then the passes that need them: one channel at a time, which stays in cache.
  void add(const BatchNorm&) {
    const double residual = step_.residual ? y_ : 0;
    move(x_ + residual, y_);
    if (!training_) return;
    const double value = step_.residual && step_.activation ? y_ : 0;
    move(x_ + y_ + value, x_ + residual);
  }
  void add(const LocalResponseNorm&) {
    move(x_, y_, powers);
    if (backward_) move(x_ + y_, x_, powers);
  }
  void add(const Activation&) {
    move(x_, y_);
    if (backward_) move(2 * y_, x_);
  }
  void add(const LayerActivation&) {
    move(x_, y_);
    if (backward_) move(2 * y_, x_);
  }
  void add(const PRelu&) {
    move(x_, y_);
    if (training_) move(x_ + y_, x_);
  }
  void add(const Dropout&) {
    move(x_, y_);
    if (backward_) move(y_, x_);
  }
  void add(const Gate&) {
    move(x_, y_);
    if (backward_) move(x_ + y_, x_);
  }
  // Bias in place; dy's sum.
  void add(const ConvTranspose& layer) {
    if (!layer.bias) return;
    move(y_, y_);
    if (training_) move(y_, 0);
  }
  // A pixel's channels stay in cache from its statistics on.
  void add(const LayerNorm&) {
    move(x_, y_);
    if (training_) move(x_ + y_, x_);
  }
  // Statistics, then scales and shifts in place; the backward pass normalises again.
  void add(const GroupNorm&) {
    move(x_, y_);
    move(y_, y_);
    if (training_) move(3 * x_ + 2 * y_, 3 * x_);
  }
  // Rows of all channels of a block, then pixels within rows.
  void add(const PixelShuffle&) {
    move(x_, y_);
    move(y_, y_, transposing);
    if (backward_) move(y_ + x_, y_ + x_, transposing);
  }
  void add(const ChannelScale&) {
    move(x_, y_);
    if (training_) move(x_ + y_, x_);
  }
  void add(const Slice&) {
    move(y_, y_);
    if (backward_) move(y_, x_ + y_);
  }
  void add(const ChannelShuffle&) {
    move(x_, y_);
    if (backward_) move(y_, x_);
  }
  void add(const Resize&) {
    move(x_, y_, windows);
    if (backward_) move(y_, x_, windows);
  }
  void add(const PadChannels&) {
    move(x_, x_ + y_);
    if (backward_) move(x_, x_);
  }
  // Sequences are transposed on the way in and out.
  void add(const Recurrent&) {
    move(x_, x_, transposing);
    move(y_, y_, transposing);
    if (training_) move(y_, y_, transposing);
    if (backward_) move(x_, x_, transposing);
  }
  // The gradient of each term is dy; one of them shares its buffer.
  void add(const Add&) {
    for (std::size_t i = 1; i < step_.inputs.size(); ++i) move(2 * y_, y_);
    const auto copies = std::count(wants_dx_.begin(), wants_dx_.end(), true) - 1;
    if (backward_ && copies > 0) move(double(copies) * y_, double(copies) * y_);
  }
  void add(const Concat&) {
    move(y_, y_);
    if (backward_) move(y_, y_);
  }

  const Graph& graph_;
  const Step& step_;
  bool training_;
  double size_;
  bool backward_;
  const std::vector<bool>& wants_dx_;
  double x_ = 0, y_ = 0, filter_ = 0;  // bytes; x of the first input
  WorkEstimate work_;
};

}  // namespace

TensorDesc tensor_desc(const Shape& s, Layout layout) { return {s.n, s.c, s.d * s.h, s.w, layout}; }

WorkEstimate other_work(const Graph& graph, const Step& step, Mode mode, DType dtype, Layout x,
                        Layout y, const std::vector<bool>& wants_dx) {
  return Work(graph, step, mode, dtype, x, y, wants_dx).result();
}

bool same_memory(const TensorDesc& a, const TensorDesc& b) {
  return a.layout == b.layout || (a.h * a.w == 1 && a.padded_c() == b.padded_c());
}

WorkEstimate convert_work(const TensorDesc& from, const TensorDesc& to, DType dtype) {
  if (same_memory(from, to)) return {};
  const double size = double(size_of(dtype));
  return {{{"", 0, size * double(from.elements()), size * double(to.elements()), transposing}}};
}

WorkEstimate add_work(const TensorDesc& desc, DType dtype) {
  const double bytes = double(size_of(dtype)) * double(desc.elements());
  return {{{"", 0, 2 * bytes, bytes, streaming}}};
}

}  // namespace convlab::nets
