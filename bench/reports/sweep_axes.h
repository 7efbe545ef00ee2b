// The points of a sweep: one problem with some of its numbers varied.
#pragma once

#include <string>
#include <vector>

#include "conv/problem.h"

namespace convlab {

struct Axis {
  std::string name;  // n c h k r stride threads dtype layout
  std::vector<std::string> values;
};

// "n=1:256:*2", "h=7:56:+7", "r=1,3,5", "threads=1:4", "dtype=f32,f64". Throws InputError for an
// unknown name, a range that does not end, a value that its axis does not take or that stands
// twice.
Axis parse_axis(const std::string& text);

struct SweepPoint {
  std::vector<std::string> values;  // one for each axis
  ConvProblem problem;              // dtype set
  int threads = 0;
  std::string layout;
};

// Every combination, the first axis slowest. h is H and W, r is R and S, stride both strides.
// Padding that keeps the size at stride 1, (R-1)/2, goes on doing so; any other stays as it is.
// Throws InputError for axes of one name, a point that is no problem, and for h or r of a base that
// is not square.
std::vector<SweepPoint> sweep_points(const SweepPoint& base, const std::vector<Axis>&);

}  // namespace convlab
