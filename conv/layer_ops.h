// A device's operations besides convolution. Each backend implements this interface.
//
// Every pointer is device memory. Elements have the given type, f32 or f64; so do scales, shifts,
// statistics, losses and optimizer state. Other types throw InputError, but for 16 bits as
// conv/optional/half_ops.h says. Work is queued on the stream, allocates nothing, and returns
// nothing to the host. Results are the same for any number of threads.
//
// All tensors of one operation have one layout. Padding lanes are zero on entry and are written as
// zero. An operation marked "in place" may write its output over its elementwise input. Nothing
// else overlaps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "conv/types/activation.h"
#include "conv/types/layout.h"
#include "conv/types/span.h"

namespace convlab {

class Stream;

// Copies channels [from_channel, from_channel + channels) of one tensor to the channels from
// to_channel on of another with the same n, h, w, in any layout. Other channels keep their
// contents. Zero the padding lanes first (LayerOps::zero) unless the last channel of `to` is among
// those written: that copy zeroes them.
struct ChannelCopy {
  TensorDesc from, to;
  std::int64_t from_channel = 0, to_channel = 0, channels = 0;
};

enum class PoolKind : std::uint8_t { max, average };

// y[p, q] = the maximum, or the mean, of x[p * stride_h - pad_h + r, q * stride_w - pad_w + s].
// pad_h and pad_w are above and to the left; the padding below and to the right follows from y's
// size (this covers rounding up). Every window holds at least one element of x.
//
// In three dimensions x and y have x_depth and y_depth slices, and their h counts the rows of all
// slices (conv/types/layout.h). The element at z reads the slices z * stride_d - pad_d + t.
struct PoolDesc {
  PoolKind kind = PoolKind::max;
  TensorDesc x, y;  // same n, c and layout
  std::int64_t window_h = 1, window_w = 1;
  std::int64_t stride_h = 1, stride_w = 1;
  std::int64_t pad_h = 0, pad_w = 0;
  bool count_padding = true;  // a mean divides by the window's size; otherwise by its elements of x
  // Padding behind x. Only such a mean reads it: it counts what lies in there, and not what a
  // window that rounding up added has beyond.
  std::int64_t pad_end_d = any, pad_end_h = any, pad_end_w = any;
  static constexpr std::int64_t any = std::int64_t{1} << 40;
  std::int64_t x_depth = 1, y_depth = 1;
  std::int64_t window_d = 1, stride_d = 1, pad_d = 0;

  // Of a slice. Short rows notice a division.
  constexpr std::int64_t x_rows() const { return x_depth == 1 ? x.h : x.h / x_depth; }
  constexpr std::int64_t y_rows() const { return y_depth == 1 ? y.h : y.h / y_depth; }
  constexpr std::int64_t window_elements() const { return window_d * window_h * window_w; }

  // Bytes that the forward pass saves for the backward pass: the index of the maximum, the first of
  // equals. 0 for means.
  constexpr std::int64_t index_bytes() const { return kind == PoolKind::max ? y.elements() : 0; }
};

PoolDesc global_average_pool(const TensorDesc& x);

// Activations that layers have and epilogues do not: those with numbers, and rare ones.
//   leaky_relu: x if x > 0, else a x.  elu: x if x > 0, else a (e^x - 1).  clip: min(max(x, a), b),
//   where a and b may be infinite.  softplus: ln(1 + e^x).  mish: x tanh(ln(1 + e^x)).
// The derivative of clip is 1 at a and at b.
struct LayerActivation {
  enum class Kind : std::uint8_t { leaky_relu, elu, clip, softplus, mish } kind = Kind::leaky_relu;
  double a = 0.01, b = 0;

  // Whether 0 becomes 0, so that padding lanes stay as they are.
  constexpr bool keeps_zero() const {
    return kind == Kind::clip ? a <= 0 && b >= 0 : kind != Kind::softplus;
  }
};
std::string_view to_string(LayerActivation::Kind);  // "leaky_relu", "elu", ...

// y = scale[c] * (x - mean[c]) / sqrt(variance[c] + epsilon) + shift[c], then + residual, then ReLU
// (Ioffe & Szegedy 2015, arXiv:1502.03167). In training the mean and the biased variance are the
// batch's.
struct BatchNormDesc {
  TensorDesc x;
  double epsilon = 1e-5;
  bool residual = false, relu = false;
};

// A batch that several devices share, each with some of its images as x. Each pass needs two
// numbers a channel of the whole batch:
//   forward: the mean and the biased variance
//   backward: the sum of g and the sum of g * (x - mean), where g is dy, or 0 where the ReLU cut y
//     off
// batch_norm_moments and batch_norm_gradient_sums find those of x. The caller combines them over
// all devices, and on each of them batch_norm_training and batch_norm_backward do the rest.
struct WholeBatch {
  // 2 C values: the first number of every channel, then the second. Null: x is the whole batch.
  const double* pairs = nullptr;
  std::int64_t count = 0;  // elements of the whole batch in a channel
};

// All per-channel arrays have C elements.
struct BatchNormForward {
  const void* x = nullptr;
  const void* residual = nullptr;  // may be y
  const void* scale = nullptr;
  const void* shift = nullptr;
  void* y = nullptr;
};

struct BatchNormStatistics {
  // In training running = (1 - momentum) * running + momentum * batch's, where the variance is the
  // unbiased one.
  double momentum = 0.1;
  void* running_mean = nullptr;
  void* running_variance = nullptr;
  // The batch's, saved by the forward pass for the backward pass.
  void* mean = nullptr;
  void* inverse_deviation = nullptr;  // 1 / sqrt(variance + epsilon)
  WholeBatch whole = {};
};

struct BatchNormBackward {
  const void* x = nullptr;
  const void* y = nullptr;  // read only when there are both a residual and a ReLU
  const void* dy = nullptr;
  const void* scale = nullptr;
  const void* shift = nullptr;
  const void* mean = nullptr;
  const void* inverse_deviation = nullptr;
  void* dx = nullptr;         // may be dy
  void* dresidual = nullptr;  // written only when there is a residual; may be dy
  void* dscale = nullptr;
  void* dshift = nullptr;
  WholeBatch whole = {};
};

// Across channels: y = x / (k + alpha * sum of x^2 over `size` neighbouring channels)^beta, with
// alpha not divided by size (Krizhevsky et al. 2012, section 3.3). The neighbours of c start at
// c - size / 2; channels that do not exist count as zero.
struct LrnDesc {
  TensorDesc x;
  std::int64_t size = 5;
  double alpha = 1e-4, beta = 0.75, k = 2;
};

// y = gate[n, c] * x[n, c, h, w], as squeeze-and-excitation scales channels (Hu et al. 2018,
// arXiv:1709.01507). The gate is N C 1 1.
struct GateDesc {
  TensorDesc x;

  constexpr TensorDesc gate() const { return {x.n, x.c, 1, 1, x.layout}; }
};

// At each pixel, over its channels:
//   y = scale[c] * (x - mean) / sqrt(variance + epsilon) + shift[c]
// with the biased variance (Ba, Kiros & Hinton 2016, arXiv:1607.06450).
struct LayerNormDesc {
  TensorDesc x;
  double epsilon = 1e-6;
};

// All per-channel arrays have C elements.
struct LayerNormBackward {
  const void* x = nullptr;
  const void* dy = nullptr;
  const void* scale = nullptr;
  void* dx = nullptr;  // may be dy
  void* dscale = nullptr;
  void* dshift = nullptr;
};

// Another size of each channel's plane, in any layout that both tensors have.
//   nearest: y[p, q] = x[floor(p * H / P), floor(q * W / Q)]
//   bilinear: y[p, q] interpolates x at (p + 1/2) * H / P - 1/2, at least 0, and likewise in w;
//   past
//     the last row there is that row (PyTorch's align_corners=False)
enum class ResizeKind : std::uint8_t { nearest, bilinear };
struct ResizeDesc {
  ResizeKind kind = ResizeKind::nearest;
  TensorDesc x, y;  // same n, c and layout
};

// Each element is zero with probability p, else x / (1 - p). Which ones depends only on n, c, h, w,
// the seed and the draw, so that backward repeats them: one word of Philox4x32-10 (Salmon et al.
// 2011) with the seed as key and (NCHW index, draw) as counter. With whole_images the images are
// drawn instead of their elements (stochastic depth, Huang et al. 2016, arXiv:1603.09382), and the
// image's number is the index.
struct DropoutDesc {
  TensorDesc x;
  double p = 0.5;  // in [0, 1)
  std::uint64_t seed = 0;
  std::uint64_t draw = 0;        // a different number for each layer and step
  std::int64_t first_image = 0;  // where x begins in the batch that n counts in
  bool whole_images = false;
};

// g = dw + weight_decay * w; v = momentum * v + g; w -= rate * (nesterov ? g + momentum * v : v).
struct SgdDesc {
  double rate = 0.01, momentum = 0, weight_decay = 0;
  bool nesterov = false;
};

// Kingma & Ba 2015 (arXiv:1412.6980). Weight decay adds to the gradient; decoupled (Loshchilov &
// Hutter 2019, arXiv:1711.05101) it shrinks the weights by rate * weight_decay first.
struct AdamDesc {
  double rate = 1e-3, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0;
  bool decoupled = false;
  std::int64_t step = 1;  // number of this update, from 1: corrects the averages' bias
};

// C = op(A) op(B), or C += with accumulate. All are row-major and dense: op(A) is m x k, op(B) is
// k x n, C is m x n; a transposed operand is stored the other way round.
struct GemmDesc {
  std::int64_t m = 1, n = 1, k = 1;
  bool transpose_a = false, transpose_b = false;
  bool accumulate = false;
};

// Checks made by every backend first. Each throws InputError that says what is wrong: a type other
// than f32 and f64; channels out of range; invalid sizes; a window without an element of x; a max
// window of more than 256 elements (an index is one byte); an activation's numbers that are NaN,
// infinite or in the wrong order; a whole batch smaller than x; a first image below 0; a gated
// tensor without elements; several pixels per image for an operation on classes; a missing array.
void validate(DType, std::string_view operation);
void validate(const ChannelCopy&);
void validate(const PoolDesc&);
void validate(const LayerActivation&);
void validate(const BatchNormDesc&, const WholeBatch&);
void validate(const LrnDesc&);
void validate(const LayerNormDesc&);
void validate(const ResizeDesc&);
void validate_groups(const TensorDesc&, std::int64_t groups);  // of channels
void validate(const DropoutDesc&);
void validate(const GateDesc&);
void validate_classes(const TensorDesc&, std::string_view operation);
void validate(const GemmDesc&);
void validate(const SgdDesc&, const void* velocity);
void validate(const AdamDesc&);

class LayerOps {
 public:
  virtual ~LayerOps() = default;

  // An upper bound on the workspace of any operation for a tensor of these sizes.
  virtual std::size_t workspace_bytes(DType, const TensorDesc&) const = 0;

  // ---- Copies, in every type ----

  virtual void zero(Span, Stream&) const = 0;
  // Copies a tensor into another layout of the same n, c, h, w; lanes that pad C are written as
  // zero.
  virtual void convert_layout(DType, const TensorDesc& from_desc, const void* from,
                              const TensorDesc& to_desc, void* to, Stream&) const = 0;
  // Concatenation is one copy for each part; its backward pass is the copies back.
  virtual void copy_channels(DType, const ChannelCopy&, const void* from, void* to,
                             Stream&) const = 0;

  // ---- Elementwise; in place ----

  virtual void add(DType, const TensorDesc&, const void* a, const void* b, void* y,
                   Stream&) const = 0;
  virtual void activation_forward(DType, ActivationKind, const TensorDesc&, const void* x, void* y,
                                  Stream&) const = 0;
  // value: x where derivative_reads_x(kind), else y. In place: dx may be dy.
  virtual void activation_backward(DType, ActivationKind, const TensorDesc&, const void* value,
                                   const void* dy, void* dx, Stream&) const = 0;
  // Forward from x to y, and backward from dy to dx.
  virtual void dropout(DType, const DropoutDesc&, const void* from, void* to, Stream&) const = 0;
  virtual void gate_forward(DType, const GateDesc&, const void* x, const void* gate, void* y,
                            Stream&) const = 0;
  // dx = gate * dy, dgate[n, c] = the sum of x * dy over h and w. Either may be null; dx may be dy.
  virtual void gate_backward(DType, const GateDesc&, const void* x, const void* gate,
                             const void* dy, void* dx, void* dgate, Stream&) const = 0;

  // ---- Per channel ----

  // y = x + bias[c]; in place.
  virtual void bias_forward(DType, const TensorDesc&, const void* x, const void* bias, void* y,
                            Workspace, Stream&) const = 0;
  virtual void bias_backward(DType, const TensorDesc&, const void* dy, void* dbias, Workspace,
                             Stream&) const = 0;
  // Writes what WholeBatch::pairs holds, of x alone; so does batch_norm_gradient_sums.
  virtual void batch_norm_moments(DType, const TensorDesc&, const void* x, double* pairs, Workspace,
                                  Stream&) const = 0;
  virtual void batch_norm_training(DType, const BatchNormDesc&, const BatchNormForward&,
                                   const BatchNormStatistics&, Workspace, Stream&) const = 0;
  virtual void batch_norm_inference(DType, const BatchNormDesc&, const BatchNormForward&,
                                    const void* running_mean, const void* running_variance,
                                    Workspace, Stream&) const = 0;
  // Also writes dscale and dshift of x alone, which add up over the devices. Writes neither dx nor
  // dresidual.
  virtual void batch_norm_gradient_sums(DType, const BatchNormDesc&, const BatchNormBackward&,
                                        double* pairs, Workspace, Stream&) const = 0;
  // With WholeBatch::pairs writes only dx and dresidual.
  virtual void batch_norm_backward(DType, const BatchNormDesc&, const BatchNormBackward&, Workspace,
                                   Stream&) const = 0;

  // ---- Neighbourhoods ----

  // index: index_bytes(), written; null when no backward pass follows.
  virtual void pool_forward(DType, const PoolDesc&, const void* x, void* y, void* index,
                            Stream&) const = 0;
  virtual void pool_backward(DType, const PoolDesc&, const void* dy, const void* index, void* dx,
                             Stream&) const = 0;
  virtual void lrn_forward(DType, const LrnDesc&, const void* x, void* y, Workspace,
                           Stream&) const = 0;
  virtual void lrn_backward(DType, const LrnDesc&, const void* x, const void* dy, void* dx,
                            Workspace, Stream&) const = 0;

  // ---- Fully connected layers ----

  // For one thread count the bits are the same every time. They may differ between thread counts:
  // the vendor's library may do the work.
  virtual void gemm(DType, const GemmDesc&, const void* a, const void* b, void* c,
                    Stream&) const = 0;

  // ---- Losses: one value per image, so that the batch's loss is their mean ----

  // p = softmax of x over the channels; h = w = 1. In place.
  virtual void softmax(DType, const TensorDesc&, const void* x, void* p, Stream&) const = 0;
  // loss[n] = -log softmax(x)[n, label[n]], and p as above. An image whose label is outside [0, C)
  // is ignored: its loss and its gradient are zero.
  virtual void cross_entropy_forward(DType, const TensorDesc&, const void* x,
                                     const std::int32_t* label, void* p, void* loss,
                                     Stream&) const = 0;
  // dx = factor * d(sum of losses)/dx: 1 / N for the mean. In place of p.
  virtual void cross_entropy_backward(DType, const TensorDesc&, const void* p,
                                      const std::int32_t* label, double factor, void* dx,
                                      Stream&) const = 0;
  // loss[n] = the mean of (x - target)^2 over the image.
  virtual void squared_error_forward(DType, const TensorDesc&, const void* x, const void* target,
                                     void* loss, Stream&) const = 0;
  virtual void squared_error_backward(DType, const TensorDesc&, const void* x, const void* target,
                                      double factor, void* dx, Stream&) const = 0;

  // ---- Updates of `count` weights ----

  // velocity: starts at zero; null when momentum is 0.
  virtual void sgd_update(DType, const SgdDesc&, std::int64_t count, const void* dw, void* w,
                          void* velocity, Stream&) const = 0;
  // mean, square: running averages of dw and dw^2; start at zero.
  virtual void adam_update(DType, const AdamDesc&, std::int64_t count, const void* dw, void* w,
                           void* mean, void* square, Stream&) const = 0;

  // ---- Channels and sizes of images ----

  virtual void layer_norm_forward(DType, const LayerNormDesc&, const void* x, const void* scale,
                                  const void* shift, void* y, Stream&) const = 0;
  virtual void layer_norm_backward(DType, const LayerNormDesc&, const LayerNormBackward&, Workspace,
                                   Stream&) const = 0;
  // y = scale[c] * x; in place. Backward dx may be dy.
  virtual void scale_channels_forward(DType, const TensorDesc&, const void* x, const void* scale,
                                      void* y, Stream&) const = 0;
  virtual void scale_channels_backward(DType, const TensorDesc&, const void* x, const void* dy,
                                       const void* scale, void* dx, void* dscale, Workspace,
                                       Stream&) const = 0;
  // Channel g * (C / groups) + i goes to i * groups + g (Zhang et al. 2017, arXiv:1707.01083). The
  // inverse is the shuffle with C / groups groups.
  virtual void shuffle_channels(DType, const TensorDesc&, std::int64_t groups, const void* from,
                                void* to, Stream&) const = 0;
  virtual void resize_forward(DType, const ResizeDesc&, const void* x, void* y, Stream&) const = 0;
  virtual void resize_backward(DType, const ResizeDesc&, const void* dy, void* dx,
                               Stream&) const = 0;

  // ---- Activations that no epilogue has; in place, and backward dx may be dy ----

  virtual void activation_forward(DType, const LayerActivation&, const TensorDesc&, const void* x,
                                  void* y, Stream&) const = 0;
  virtual void activation_backward(DType, const LayerActivation&, const TensorDesc&, const void* x,
                                   const void* dy, void* dx, Stream&) const = 0;
  // y = x if x > 0, else slope[c] * x (He et al. 2015, arXiv:1502.01852).
  virtual void prelu_forward(DType, const TensorDesc&, const void* x, const void* slope, void* y,
                             Stream&) const = 0;
  virtual void prelu_backward(DType, const TensorDesc&, const void* x, const void* dy,
                              const void* slope, void* dx, void* dslope, Workspace,
                              Stream&) const = 0;
};

}  // namespace convlab
