#include "conv/layer_ops.h"

#include <fmt/format.h>

#include "conv/error.h"

namespace convlab {
namespace {

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

}  // namespace

void validate(const PoolDesc& pool) {
  if (pool.x.n != pool.y.n || pool.x.c != pool.y.c || pool.x.layout != pool.y.layout)
    throw InputError(fmt::format("pooling: x is {}x{} (N, C) in {}, y {}x{} in {}", pool.x.n,
                                 pool.x.c, to_string(pool.x.layout), pool.y.n, pool.y.c,
                                 to_string(pool.y.layout)));
  validate_axis("H", pool.x.h, pool.y.h, pool.window_h, pool.stride_h, pool.pad_h);
  validate_axis("W", pool.x.w, pool.y.w, pool.window_w, pool.stride_w, pool.pad_w);
  if (pool.kind == PoolKind::max && pool.window_h * pool.window_w > 256)
    throw InputError(fmt::format("max pooling: a window of {}x{} has more than 256 elements",
                                 pool.window_h, pool.window_w));
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
