// Transposed convolution: the gradient of a convolution, x and y exchanged.
//
// A transposed convolution maps N K P Q to N C H W (with depth, N K Z P Q to N C D H W), where C H
// W K P Q are the sizes of the convolution. Each of its passes is one of the convolution's:
//   forward         = backward_data    (its x is dy, its y is dx)
//   backward_data   = forward          (its dy is x, its dx is y)
//   backward_filter = backward_filter  (its x is dy, its dy is x)
// The filter is the convolution's, K C/groups T R S. Hence the problem is a ConvProblem, and only
// the text has another form.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "conv/problem.h"

namespace convlab {

inline constexpr std::string_view transposed_prefix = "deconv:";

// The text as benchdnn's deconvolution driver takes it, after the prefix:
// `deconv:mb2ic64ih28oc32oh56kh2sh2ph0`. ic and ih are of the input, so ic is the convolution's K
// and ih its P. An omitted oh is the least, (ih - 1) sh + (kh - 1) (dh + 1) + 1 - 2 ph; what it
// says beyond that is output padding, at most ph + sh - 1. All else is as in parse_problem.
bool is_transposed_text(std::string_view);
// Returns the convolution, in pass forward. Throws InputError as parse_problem does, and adds a
// warning when there is no mb.
NamedProblem parse_transposed_problem(std::string_view text, std::vector<std::string>& warnings);
// Canonical, as to_text is: parse_transposed_problem(to_transposed_text(p)) has p's sizes.
std::string to_transposed_text(const ConvProblem&);

// The pass of the convolution that computes this pass of the transposed one, and the other way
// round.
Pass transposed(Pass);

}  // namespace convlab
