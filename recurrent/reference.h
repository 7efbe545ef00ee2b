// The reference: plain loops in double, for every cell and pass, on all of OpenMP's threads.
#pragma once

#include <span>
#include <vector>

#include "recurrent/problem.h"

namespace convlab {

// Host data of one problem, always as double, laid out as problem.h says. The pass decides which
// arrays are used. States may be empty: they are zero then.
struct RecurrentInput {
  std::span<const double> x = {}, weights = {}, h0 = {}, c0 = {};
  std::span<const double> y = {}, activations = {};
  std::span<const double> dy = {}, dhn = {}, dcn = {};
  std::span<const double> dgates = {};
  bool needs_dx = true;  // backward_data; false: `out` stays empty
};

struct RecurrentOutput {
  std::vector<double> out;           // y, dx or dweights
  std::vector<double> out_h, out_c;  // hn and cn, or dh0 and dc0; c only of an lstm
  std::vector<double> activations;   // forward when training
  std::vector<double> dgates;        // backward_data
};

// Throws InputError for a problem that validate() refuses, and for arrays whose length does not
// match it.
RecurrentOutput reference_of(const RecurrentProblem&, const RecurrentInput&);

}  // namespace convlab
