// One convolution: its sizes, pass, element type, layouts and epilogue.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "conv/types/activation.h"
#include "conv/types/layout.h"

namespace convlab {

// forward: x,w -> y.  backward_data: dy,w -> dx.  backward_filter: x,dy -> dw.
enum class Pass : std::uint8_t { forward, backward_data, backward_filter };
inline constexpr std::array all_passes{Pass::forward, Pass::backward_data, Pass::backward_filter};
std::string_view to_string(Pass);   // "fwd", "bwd_d", "bwd_w"
Pass parse_pass(std::string_view);  // throws InputError

// The operations on y before it is stored (forward only), in this order:
//   y = activation(conv(x, w) + bias[k] + residual).
struct Epilogue {
  bool bias = false, residual = false;
  std::optional<ActivationKind> activation = {};
  constexpr bool empty() const { return !bias && !residual && !activation; }
  friend constexpr bool operator==(const Epilogue&, const Epilogue&) = default;
};

// Cross-correlation, as in cuDNN:
//   y[n,k,p,q] = sum over c,r,s of x[n, c, p*stride_h - pad_h + r*dilation_h, ...] * w[k,c,r,s],
// where c runs over the C/groups channels of k's group. x is N C H W, w is K C/groups R S,
// y is N K P Q. pad_h and pad_w are the padding above and to the left; the padding below and to
// the right follows from P and Q and may differ, even be negative (input rows that no output
// reads). A dilation of 1 is dense.
//
// In three dimensions x is N C D H W, w is K C/groups T R S and y is N K Z P Q; pad_d is the
// padding in front. A problem of two dimensions has D = T = Z = 1.
struct ConvProblem {
  Pass pass = Pass::forward;
  DType dtype = DType::f32;
  std::int64_t n = 1, c = 1, d = 1, h = 1, w = 1;
  std::int64_t k = 1, t = 1, r = 1, s = 1;
  std::int64_t z = 1, p = 1, q = 1;
  std::int64_t stride_d = 1, stride_h = 1, stride_w = 1;
  std::int64_t pad_d = 0, pad_h = 0, pad_w = 0;
  std::int64_t dilation_d = 1, dilation_h = 1, dilation_w = 1;
  std::int64_t groups = 1;
  Layout x_layout = Layout::nchw;  // of x and dx
  Layout y_layout = Layout::nchw;  // of y, dy and the residual
  Epilogue epilogue;               // forward only
  bool accumulate = false;         // output += result; not with an epilogue
  // Of views, which algorithms get that compute slices of a depth (kernels_cpu/slices/): not for
  // users, and in no text. Without depth only.
  Steps x_steps = {}, y_steps = {};

  constexpr bool has_depth() const {
    return d != 1 || t != 1 || z != 1 || stride_d != 1 || pad_d != 0 || dilation_d != 1;
  }
  constexpr bool is_view() const { return x_steps != Steps{} || y_steps != Steps{}; }
  // With D * H and Z * P rows (conv/types/layout.h).
  constexpr TensorDesc x_desc() const { return {n, c, d * h, w, x_layout, x_steps}; }
  constexpr TensorDesc y_desc() const { return {n, k, z * p, q, y_layout, y_steps}; }
  constexpr std::int64_t filter_elements() const { return k * (c / groups) * t * r * s; }
  constexpr std::int64_t x_bytes() const { return x_desc().elements() * size_of(dtype); }
  constexpr std::int64_t y_bytes() const { return y_desc().elements() * size_of(dtype); }
  constexpr std::int64_t filter_bytes() const { return filter_elements() * size_of(dtype); }
  // The output of this pass: y, dx or dw.
  constexpr std::int64_t output_bytes() const {
    return pass == Pass::forward         ? y_bytes()
           : pass == Pass::backward_data ? x_bytes()
                                         : filter_bytes();
  }
  constexpr std::int64_t pad_back() const {
    return (z - 1) * stride_d + (t - 1) * dilation_d + 1 - d - pad_d;
  }
  constexpr std::int64_t pad_bottom() const {
    return (p - 1) * stride_h + (r - 1) * dilation_h + 1 - h - pad_h;
  }
  constexpr std::int64_t pad_right() const {
    return (q - 1) * stride_w + (s - 1) * dilation_w + 1 - w - pad_w;
  }
  constexpr bool symmetric_padding() const {
    return pad_back() == pad_d && pad_bottom() == pad_h && pad_right() == pad_w;
  }
  // Direct-equivalent work, padded taps included: 2 N K Z P Q (C/g) T R S.
  constexpr double flops() const {
    return 2.0 * double(n) * double(k) * double(z) * double(p) * double(q) * double(c) /
           double(groups) * double(t) * double(r) * double(s);
  }
  friend constexpr bool operator==(const ConvProblem&, const ConvProblem&) = default;
};

// Throws InputError naming the field when the sizes are invalid (non-positive, P or Q that the
// geometry cannot give, C or K not divisible by groups, epilogue outside forward, ...) or when any
// tensor's size overflows 2^62 bytes. Every parser calls it; algorithms may rely on it.
void validate(const ConvProblem&);

// The text form of oneDNN's benchdnn, `g2mb16ic64ih56oc64oh56kh3ph1n"layer1.0.conv1*4"`: sizes
// only, no pass, type or layout. dh0 is dense; ic and oc are totals; a given oh fixes the bottom
// padding; an omitted ph is derived from oh (0 if that is omitted too); an omitted mb is 2; `_` is
// ignored; the name runs to the end, quotes optional; a trailing `*k` says how often the layer
// occurs. An omitted width equals the height, field by field (benchdnn itself copies all width
// fields or none, so a text that gives some of them may mean something else to it, or nothing);
// widths without any height are one row. With any of id, od, kd, sd, pd, dd the problem has depth,
// and heights and widths that are all omitted equal the depth.
struct NamedProblem {
  ConvProblem problem;
  std::string name;
  std::int64_t count = 1;
  friend bool operator==(const NamedProblem&, const NamedProblem&) = default;
};

// Throws InputError that quotes the text with a caret under the offending character.
NamedProblem parse_problem(std::string_view text);
// Canonical text: fields in fixed order; g1, unit strides, dense dilations, the widths of square
// problems, the heights of cubes and depth where there is none are left out. Equal sizes give equal
// text, parse_problem(to_text(p)) has p's sizes, and benchdnn reads it the same way. Used as the
// key of the tuning store. A name that contains a quote would not parse.
std::string to_text(const ConvProblem&);
std::string to_text(const NamedProblem&);

// Reads one problem a line; `#` comments and empty lines are skipped, option lines (`--...`) are
// skipped with a line in *warnings. Throws InputError with the file name and line number, or when
// there is no problem in the file.
std::vector<NamedProblem> read_problem_file(const std::string& path,
                                            std::vector<std::string>* warnings = nullptr);

}  // namespace convlab
