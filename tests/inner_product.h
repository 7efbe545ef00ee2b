// One side of <conv(x, w), dy> = <x, bwd_d(dy, w)> = <w, bwd_w(x, dy)>, which holds independently
// of the reference.
#pragma once

#include <cstdint>
#include <span>

#include "autotune/testbed/verify.h"
#include "conv/algo.h"

namespace convlab {

// The inner product of one pass's result with the operand that the pass does not read. All passes
// draw the same x, w and dy from one seed. f32 or f64, on devices with host-readable memory.
inline double inner_product(const ConvAlgo& algo, const ConvProblem& p,
                            std::span<const double> other, Device& device) {
  const auto stream = device.make_stream();
  const ReferenceCase data(p, 4, DataKind::small_integers);
  Operands operands(data, p, device, *stream);
  GuardedBuffer workspace;
  Trial trial(algo, algo.configs(p, device).front(), operands, workspace, device, *stream);
  trial.pack();
  trial.run();
  const void* const out = operands.args().out;
  const auto at = [&](std::int64_t i) {
    return p.dtype == DType::f64 ? static_cast<const double*>(out)[i]
                                 : double(static_cast<const float*>(out)[i]);
  };
  const TensorDesc desc = p.pass == Pass::forward ? p.y_desc()
                          : p.pass == Pass::backward_data
                              ? p.x_desc()
                              : TensorDesc{p.k, p.c / p.groups, p.t * p.r, p.s};
  double sum = 0;
  std::size_t i = 0;
  for (std::int64_t n = 0; n < desc.n; ++n)
    for (std::int64_t c = 0; c < desc.c; ++c)
      for (std::int64_t h = 0; h < desc.h; ++h)
        for (std::int64_t w = 0; w < desc.w; ++w) sum += other[i++] * at(desc.offset(n, c, h, w));
  return sum;
}

}  // namespace convlab
