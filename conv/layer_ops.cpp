#include "conv/layer_ops.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "conv/error.h"

namespace convlab {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

void validate_axis(const char* axis, std::int64_t in, std::int64_t out, std::int64_t window,
                   std::int64_t stride, std::int64_t pad) {
  if (in < 1 || out < 1 || window < 1 || stride < 1 || pad < 0)
    throw InputError(fmt::format(
        "pooling over {}: input {}, output {}, window {}, stride {} and padding {} make no sense",
        axis, in, out, window, stride, pad));
  if (pad >= window || (out - 1) * stride - pad >= in)
    throw InputError(
        fmt::format("pooling over {}: a window of {} with stride {} and padding {} lies wholly "
                    "outside the {} elements of x when y has {}",
                    axis, window, stride, pad, in, out));
}

void validate_channels(std::string_view which, const TensorDesc& t, std::int64_t first,
                       std::int64_t channels) {
  if (first < 0 || channels < 1 || first + channels > t.c)
    throw InputError(fmt::format("cannot copy {} channels from channel {} on: {} has {}", channels,
                                 first, which, t.c));
}

void expect_number(std::string_view what, double value, double below) {
  if (!(value >= 0 && value < below))
    throw InputError(
        below == infinity
            ? fmt::format("{} is {}: expected a number from 0 on", what, value)
            : fmt::format("{} is {}: expected a number from 0 to below {}", what, value, below));
}

}  // namespace

void validate(DType dtype, std::string_view operation) {
  if (dtype != DType::f32 && dtype != DType::f64)
    throw InputError(fmt::format("{} takes f32 and f64, not {}", operation, to_string(dtype)));
}

void validate(const ChannelCopy& copy) {
  validate_channels("the source", copy.from, copy.from_channel, copy.channels);
  validate_channels("the target", copy.to, copy.to_channel, copy.channels);
  if (copy.from.n != copy.to.n || copy.from.h != copy.to.h || copy.from.w != copy.to.w)
    throw InputError(fmt::format("cannot copy channels of {}x{}x{} into {}x{}x{} (N, H, W)",
                                 copy.from.n, copy.from.h, copy.from.w, copy.to.n, copy.to.h,
                                 copy.to.w));
}

void validate(const PoolDesc& pool) {
  if (pool.x.n != pool.y.n || pool.x.c != pool.y.c || pool.x.layout != pool.y.layout)
    throw InputError(fmt::format("pooling: x is {}x{} (N, C) in {}, y {}x{} in {}", pool.x.n,
                                 pool.x.c, to_string(pool.x.layout), pool.y.n, pool.y.c,
                                 to_string(pool.y.layout)));
  for (const auto& [t, depth] : {std::pair(pool.x, pool.x_depth), {pool.y, pool.y_depth}})
    if (depth < 1 || t.h % depth != 0)
      throw InputError(fmt::format("pooling: {} rows are not those of {} slices", t.h, depth));
  validate_axis("D", pool.x_depth, pool.y_depth, pool.window_d, pool.stride_d, pool.pad_d);
  validate_axis("H", pool.x_rows(), pool.y_rows(), pool.window_h, pool.stride_h, pool.pad_h);
  validate_axis("W", pool.x.w, pool.y.w, pool.window_w, pool.stride_w, pool.pad_w);
  if (pool.kind == PoolKind::max && pool.window_elements() > 256)
    throw InputError(fmt::format("max pooling: a window of {}{}x{} has more than 256 elements",
                                 pool.window_d == 1 ? "" : fmt::format("{}x", pool.window_d),
                                 pool.window_h, pool.window_w));
}

std::string_view to_string(LayerActivation::Kind kind) {
  constexpr std::array<std::string_view, 5> names{"leaky_relu", "elu", "clip", "softplus", "mish"};
  return names[std::size_t(kind)];
}

void validate(const LayerActivation& activation) {
  const auto [kind, a, b] = activation;
  if (kind == LayerActivation::Kind::clip) {
    if (!(a <= b)) throw InputError(fmt::format("clip: {} is not at most {}", a, b));
  } else if (!std::isfinite(a)) {
    throw InputError(fmt::format("{}: the factor is {}: expected a number", to_string(kind), a));
  }
}

void validate(const BatchNormDesc& desc, const WholeBatch& whole) {
  const std::int64_t own = desc.x.n * desc.x.h * desc.x.w;
  if (whole.pairs != nullptr && whole.count < own)
    throw InputError(
        fmt::format("batch norm: the whole batch has {} elements a channel, its part x has {}",
                    whole.count, own));
}

void validate(const LrnDesc& lrn) {
  if (lrn.size < 1) throw InputError(fmt::format("lrn: size {} is not >= 1", lrn.size));
  expect_number("lrn: alpha", lrn.alpha, infinity);
  expect_number("lrn: beta", lrn.beta, infinity);
  expect_number("lrn: k", lrn.k, infinity);
}

void validate(const LayerNormDesc& norm) {
  expect_number("layer norm: epsilon", norm.epsilon, infinity);
}

void validate(const ResizeDesc& resize) {
  const TensorDesc &x = resize.x, &y = resize.y;
  if (x.n != y.n || x.c != y.c || x.layout != y.layout)
    throw InputError(fmt::format("resizing: x is {}x{} (N, C) in {}, y {}x{} in {}", x.n, x.c,
                                 to_string(x.layout), y.n, y.c, to_string(y.layout)));
  constexpr std::int64_t most = std::int64_t{1} << 30;  // so that no product overflows
  for (const std::int64_t size : {x.h, x.w, y.h, y.w})
    if (size < 1 || size > most)
      throw InputError(
          fmt::format("resizing {}x{} to {}x{}: expected sizes of 1 to 2^30", x.h, x.w, y.h, y.w));
}

void validate_groups(const TensorDesc& desc, std::int64_t groups) {
  if (groups < 1 || desc.c % groups != 0)
    throw InputError(fmt::format("{} channels do not divide into {} groups: expected a divisor",
                                 desc.c, groups));
}

void validate(const DropoutDesc& dropout) {
  if (!(dropout.p >= 0 && dropout.p < 1))
    throw InputError(fmt::format("dropout: probability {} is not in [0, 1)", dropout.p));
  if (dropout.first_image < 0)
    throw InputError(fmt::format("dropout: first image {} is not >= 0", dropout.first_image));
}

void validate(const GateDesc& gate) {
  const TensorDesc& x = gate.x;
  if (x.n < 1 || x.c < 1 || x.h < 1 || x.w < 1)
    throw InputError(
        fmt::format("a gate takes 1 or more of each axis, not {}x{}x{}x{}", x.n, x.c, x.h, x.w));
}

void validate_classes(const TensorDesc& desc, std::string_view operation) {
  if (desc.h != 1 || desc.w != 1)
    throw InputError(
        fmt::format("{} takes one pixel an image, not {}x{}", operation, desc.h, desc.w));
}

void validate(const GemmDesc& g) {
  if (g.m < 1 || g.n < 1 || g.k < 1)
    throw InputError(
        fmt::format("gemm: sizes are {} x {} x {}: each must be 1 or more", g.m, g.n, g.k));
}

void validate(const SgdDesc& sgd, const void* velocity) {
  expect_number("sgd: the rate", sgd.rate, infinity);
  expect_number("sgd: the momentum", sgd.momentum, 1);
  expect_number("sgd: the weight decay", sgd.weight_decay, infinity);
  if (sgd.momentum != 0 && velocity == nullptr)
    throw InputError(fmt::format("sgd_update with momentum {} needs a velocity", sgd.momentum));
}

void validate(const AdamDesc& adam) {
  expect_number("adam: the rate", adam.rate, infinity);
  expect_number("adam: beta1", adam.beta1, 1);
  expect_number("adam: beta2", adam.beta2, 1);
  expect_number("adam: epsilon", adam.epsilon, infinity);
  expect_number("adam: the weight decay", adam.weight_decay, infinity);
  if (adam.step < 1) throw InputError(fmt::format("adam_update: step {} is not >= 1", adam.step));
}

PoolDesc global_average_pool(const TensorDesc& x) {
  PoolDesc pool;
  pool.kind = PoolKind::average;
  pool.x = pool.y = x;
  pool.y.h = pool.y.w = 1;
  pool.window_h = x.h;
  pool.window_w = x.w;
  return pool;
}

}  // namespace convlab
