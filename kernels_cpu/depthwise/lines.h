// One dimension of a convolution, height or width, as lines of outputs that read their input at
// stride 1. Internal.
//
// With g = gcd(stride, dilation), the outputs dilation / g apart and the taps stride / g apart read
// inputs lcm(stride, dilation) apart:
//   (q + dilation / g) * stride + s * dilation = q * stride + (s + stride / g) * dilation.
// So output i of such a line reads tap t of such a run of taps at first + in_step * (i + t), as
// without stride and dilation. backward_data, dx[w] = sum over s of dy[(w + pad - s * dilation) /
// stride] w[s] where the division leaves no remainder, has such lines too: lcm(stride, dilation)
// outputs apart, with taps in descending order.
#pragma once

#include <cstdint>
#include <vector>

#include "conv/problem.h"

namespace convlab::cpu {

// In the terms of the pass: backward_data reads dy and writes dx.
struct Dimension {
  std::int64_t in = 1, out = 1;
  std::int64_t taps = 1, stride = 1, dilation = 1, pad = 0;
  bool backward = false;
};
Dimension height_of(const ConvProblem&);
Dimension width_of(const ConvProblem&);

// Tap t, in [0, taps), of output i is read at first + in_step * (i + t). Its filter element stands
// at slot + t in Lines::order.
struct Run {
  std::int64_t first = 0, slot = 0, taps = 0;
};
// Outputs first + out_step * i, with i in [0, count). An output of backward_data may have no taps.
struct Line {
  std::int64_t first = 0, count = 0;
  std::vector<Run> runs;
};
struct Lines {
  std::int64_t in_step = 1, out_step = 1;
  std::vector<Line> lines;
  std::vector<std::int64_t> order;  // filter elements, in which each run is consecutive
};
Lines lines_of(const Dimension&);

// The taps of one output whose inputs exist, in the order of these.
struct InsideTap {
  std::int64_t tap = 0, in = 0;
};
std::vector<InsideTap> inside_taps_of(const Dimension&, std::int64_t output);

}  // namespace convlab::cpu
