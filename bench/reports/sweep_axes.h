// The points of a sweep: one problem with some of its numbers varied.
#pragma once

#include <string>
#include <vector>

#include "autotune/problem.h"

namespace convlab {

struct Axis {
  // n c d h w k g t r s stride dilation, or t n i h l; threads dtype; layout of a convolution
  std::string name;
  std::vector<std::string> values;
};

// "n=1:256:*2", "h=7:56:+7", "r=1,3,5", "threads=1:4", "dtype=f32,f64". Throws InputError for an
// name that is no axis of such problems, an endless range, an invalid value, or a repeated one.
enum class Swept : std::uint8_t { convolution, recurrent_layer };
Axis parse_axis(const std::string& text, Swept = Swept::convolution);

struct SweepPoint {
  std::vector<std::string> values;  // one for each axis
  LayerProblem layer;               // its dtype set
  int threads = 0;
  std::string layout;
};

// Every combination, the first axis slowest. h sets H and W, r sets R and S; stride and dilation (1
// is dense) set both directions, of one row only W's; in three dimensions r, stride and dilation
// set D's as well if the base has it equal. c sets G and K too if the base is depthwise, unless g
// or k is an axis. A recurrent layer's h sets I too if the base has I = H and i is no axis. Of a
// transposed convolution c, d, h and w are of its input, k of its output.
//
// Padding that keeps the size at stride 1 follows R, T, S and the dilation: (R-1)/2 on both sides,
// or R-1 in front alone. Any other stays as it is, and so does output padding. Throws InputError
// for two axes of one name, an invalid point, and h or r of a base that is not square.
std::vector<SweepPoint> sweep_points(const SweepPoint& base, const std::vector<Axis>&);

}  // namespace convlab
