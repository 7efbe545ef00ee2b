#include "kernels_cpu/depthwise/lines.h"

#include <algorithm>
#include <numeric>

namespace convlab::cpu {

Dimension height_of(const ConvProblem& p) {
  const bool backward = p.pass == Pass::backward_data;
  return {
      backward ? p.p : p.h, backward ? p.h : p.p, p.r, p.stride_h, p.dilation_h, p.pad_h, backward};
}
Dimension width_of(const ConvProblem& p) {
  const bool backward = p.pass == Pass::backward_data;
  return {
      backward ? p.q : p.w, backward ? p.w : p.q, p.s, p.stride_w, p.dilation_w, p.pad_w, backward};
}

Lines lines_of(const Dimension& d) {
  const std::int64_t divisor = std::gcd(d.stride, d.dilation);
  const std::int64_t tap_step = d.stride / divisor, multiple = d.stride * (d.dilation / divisor);
  Lines lines;
  lines.in_step = d.backward ? d.dilation / divisor : multiple;
  lines.out_step = d.backward ? multiple : d.dilation / divisor;
  std::vector<Run> runs;  // of all taps; `first` is the first tap
  for (std::int64_t tap = 0; tap < std::min(tap_step, d.taps); ++tap) {
    const std::int64_t taps = ceil_div(d.taps - tap, tap_step);
    const std::int64_t last = tap + (taps - 1) * tap_step;
    runs.push_back({d.backward ? last : tap, std::int64_t(lines.order.size()), taps});
    for (std::int64_t t = 0; t < taps; ++t)
      lines.order.push_back(d.backward ? last - t * tap_step : tap + t * tap_step);
  }
  for (std::int64_t first = 0; first < std::min(lines.out_step, d.out); ++first) {
    Line line{first, ceil_div(d.out - first, lines.out_step), {}};
    for (Run run : runs) {
      const std::int64_t at = d.backward ? first + d.pad - run.first * d.dilation
                                         : first * d.stride + run.first * d.dilation - d.pad;
      if (d.backward && at % d.stride != 0) continue;
      run.first = d.backward ? at / d.stride : at;
      line.runs.push_back(run);
    }
    lines.lines.push_back(std::move(line));
  }
  return lines;
}

std::vector<InsideTap> inside_taps_of(const Dimension& d, std::int64_t output) {
  std::vector<InsideTap> taps;
  for (std::int64_t i = 0; i < d.taps; ++i) {
    const std::int64_t tap = d.backward ? d.taps - 1 - i : i;
    const std::int64_t at = d.backward ? output + d.pad - tap * d.dilation
                                       : output * d.stride - d.pad + tap * d.dilation;
    if (d.backward && at % d.stride != 0) continue;
    const std::int64_t in = d.backward ? at / d.stride : at;
    if (in >= 0 && in < d.in) taps.push_back({tap, in});
  }
  return taps;
}

}  // namespace convlab::cpu
