#include "bench/reports/sweep_axes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "bench/options/options.h"
#include "bench/options/ranges.h"
#include "conv/error.h"
#include "conv/text/names.h"

namespace convlab {
namespace {

constexpr std::array<std::string_view, 10> axis_names{"n", "c",      "d",       "h",     "k",
                                                      "r", "stride", "threads", "dtype", "layout"};
constexpr std::array<std::string_view, 7> recurrent_axis_names{"t", "n",       "i",    "h",
                                                               "l", "threads", "dtype"};
constexpr std::array<std::string_view, 4> layout_names{"auto", "nchw", "nhwc", "nchwc"};
constexpr std::size_t most_points = most_range_values;

// 0 if the filter does not fit, which makes the problem invalid.
std::int64_t outputs(std::int64_t padded, std::int64_t filter, std::int64_t stride) {
  return padded < filter ? 0 : (padded - filter) / stride + 1;
}

// Filters and strides that are equal in depth and height stay so.
void set_size(const std::string& axis, std::int64_t value, ConvProblem& p) {
  const bool same_d = 2 * p.pad_d == (p.t - 1) * p.dilation_d,
             same_h = 2 * p.pad_h == (p.r - 1) * p.dilation_h,
             same_w = 2 * p.pad_w == (p.s - 1) * p.dilation_w, depth = p.has_depth();
  if (axis == "n") p.n = value;
  if (axis == "c") p.c = value;
  if (axis == "k") p.k = value;
  if (axis == "d") p.d = value;
  if (axis == "h") p.h = p.w = value;
  if (axis == "stride") {
    if (depth && p.stride_d == p.stride_h) p.stride_d = value;
    p.stride_h = p.stride_w = value;
  }
  if (axis == "r") {
    if (depth && p.t == p.r) {
      p.t = value;
      if (same_d) p.pad_d = (value - 1) * p.dilation_d / 2;
    }
    p.r = p.s = value;
    if (same_h) p.pad_h = (value - 1) * p.dilation_h / 2;
    if (same_w) p.pad_w = (value - 1) * p.dilation_w / 2;
  }
  if (axis == "d" || axis == "h" || axis == "r" || axis == "stride") {
    p.z = outputs(p.d + 2 * p.pad_d, (p.t - 1) * p.dilation_d + 1, p.stride_d);
    p.p = outputs(p.h + 2 * p.pad_h, (p.r - 1) * p.dilation_h + 1, p.stride_h);
    p.q = outputs(p.w + 2 * p.pad_w, (p.s - 1) * p.dilation_w + 1, p.stride_w);
  }
}

void set_size(const std::string& axis, std::int64_t value, bool square, RecurrentProblem& p) {
  if (axis == "t") p.t = value;
  if (axis == "n") p.n = value;
  if (axis == "i" || (axis == "h" && square)) p.i = value;
  if (axis == "h") p.h = value;
  if (axis == "l") p.layers = value;
}

// square: a recurrent layer's I follows H.
void set_size(const std::string& axis, std::int64_t value, bool square, Problem& problem) {
  if (const ConvProblem* const conv = problem.conv()) {
    ConvProblem p = *conv;
    set_size(axis, value, p);
    problem = p;
  } else {
    RecurrentProblem p = *problem.recurrent();
    set_size(axis, value, square, p);
    problem = p;
  }
}

void set_value(const std::string& axis, const std::string& value, bool square, SweepPoint& point) {
  point.values.push_back(value);
  if (axis == "dtype")
    point.problem.set_dtype(parse_dtype(value));
  else if (axis == "layout")
    point.layout = value;
  else if (axis == "threads")
    point.threads = parse_threads(value);
  else
    set_size(axis, parse_count(value), square, point.problem);
}

}  // namespace

Axis parse_axis(const std::string& text, Swept swept) {
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos)
    throw InputError(fmt::format("'{}': expected NAME=VALUES, as in n=1:256:*2 or {}", text,
                                 swept == Swept::convolution ? "r=1,3,5" : "h=512,768"));
  Axis axis{text.substr(0, equals), {}};
  if (swept == Swept::convolution)
    index_of_name("axis", axis.name, axis_names);
  else
    index_of_name("axis", axis.name, recurrent_axis_names);
  for (const std::string& item : split_list(text.substr(equals + 1))) {
    if (axis.name == "dtype") {
      parse_dtype(item);
      axis.values.push_back(item);
    } else if (axis.name == "layout") {
      index_of_name("layout", item, layout_names);
      axis.values.push_back(item);
    } else {
      for (const std::int64_t value : parse_range(item))
        axis.values.push_back(std::to_string(value));
    }
  }
  for (const std::string& value : axis.values)
    if (std::count(axis.values.begin(), axis.values.end(), value) > 1)
      throw InputError(fmt::format("'{}' stands twice in '{}'", value, text));
  return axis;
}

std::vector<SweepPoint> sweep_points(const SweepPoint& base, const std::vector<Axis>& axes) {
  const ConvProblem* const p = base.problem.conv();
  bool square = !p && base.problem.recurrent()->i == base.problem.recurrent()->h;
  for (const Axis& axis : axes) {
    square &= axis.name != "i";
    if (std::count_if(axes.begin(), axes.end(),
                      [&](const Axis& a) { return a.name == axis.name; }) > 1)
      throw InputError(fmt::format("two axes {}: expected one with all its values", axis.name));
    if (p && ((axis.name == "h" && p->h != p->w) || (axis.name == "r" && p->r != p->s)))
      throw InputError(fmt::format("axis {} wants a square: {} is none", axis.name, to_text(*p)));
  }
  std::vector<SweepPoint> points{base};
  for (const Axis& axis : axes) {
    std::vector<SweepPoint> more;
    for (const SweepPoint& point : points)
      for (const std::string& value : axis.values)
        set_value(axis.name, value, square, more.emplace_back(point));
    if (more.size() > most_points)
      throw InputError(fmt::format("more than {} points: expected fewer values", most_points));
    points = std::move(more);
  }
  for (const SweepPoint& point : points) validate(point.problem);
  return points;
}

}  // namespace convlab
