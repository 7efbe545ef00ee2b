// The reference: naive loops that accumulate in double, for every pass, layout and element type.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "conv/problem.h"

namespace convlab {

// All of these throw InputError for a problem that validate() refuses, and for data and indices
// that do not match the problem.

// Host data of one problem, always as double and in plain NCDHW / KCTRS, whatever the problem's
// layouts are. The pass decides which tensors are used.
struct ReferenceInput {
  std::span<const double> x = {}, w = {}, dy = {};   // x: NCDHW, w: KCTRS, dy: NKZPQ
  std::span<const double> bias = {}, residual = {};  // K, NKZPQ
  std::span<const double> out = {};                  // the output's old contents, for `accumulate`
};

// One output element by its plain index: into NKZPQ, NCDHW or KCTRS according to the pass.
double reference_at(const ConvProblem&, const ReferenceInput&, std::int64_t index);

// The outputs at these plain indices, in their order, over OpenMP threads.
std::vector<double> reference_of(const ConvProblem&, const ReferenceInput&,
                                 std::span<const std::int64_t> indices);

// Every plain index of the pass's output.
std::vector<std::int64_t> all_outputs(const ConvProblem&);

// Plain indices worth evaluating when the whole output is too large: corners, edges, both sides of
// a tile boundary near the middle, and random ones. Sorted and unique, at most `count`; all of them
// if the output is no larger.
std::vector<std::int64_t> sample_outputs(const ConvProblem&, std::int64_t count,
                                         std::uint64_t seed);

// Problems with more multiply-adds than this are checked on a sample of outputs.
inline constexpr double full_reference_limit = 2e9;

// ||y - ref||2 / ||ref||2, absolute where ||ref|| = 0. NaN or Inf anywhere gives infinity, so that
// no comparison with a bound can pass. Both spans have the same length.
double rel_error(std::span<const double> y, std::span<const double> ref);

}  // namespace convlab
