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

constexpr std::array<std::string_view, 15> axis_names{
    "n", "c", "d",      "h",        "w",       "k",     "g",     "t",
    "r", "s", "stride", "dilation", "threads", "dtype", "layout"};
constexpr std::array<std::string_view, 7> recurrent_axis_names{"t", "n",       "i",    "h",
                                                               "l", "threads", "dtype"};
constexpr std::array<std::string_view, 4> layout_names{"auto", "nchw", "nhwc", "nchwc"};
constexpr std::size_t most_points = most_range_values;

// Sizes that an axis sets besides its own, where the base has them equal and no axis is theirs.
struct Following {
  bool i_of_h = false;  // of a recurrent layer
  // Of a depthwise convolution, which else would become a grouped one.
  bool g_of_c = false, k_of_c = false;
};

// 0 if the filter does not fit, which makes the problem invalid.
std::int64_t outputs(std::int64_t padded, std::int64_t filter, std::int64_t stride) {
  return padded < filter ? 0 : (padded - filter) / stride + 1;
}

// Depth, height or width.
struct Direction {
  std::int64_t &image, &filter, &out, &stride, &pad, &dilation;
  bool transposed;  // the input is `out`

  std::int64_t& input() const { return transposed ? out : image; }
  std::int64_t span() const { return (filter - 1) * dilation + 1; }
  std::int64_t reach() const { return (out - 1) * stride + span(); }
};

struct Directions {
  Direction d, h, w;
};

Directions directions(ConvProblem& p, bool transposed) {
  return {{p.d, p.t, p.z, p.stride_d, p.pad_d, p.dilation_d, transposed},
          {p.h, p.r, p.p, p.stride_h, p.pad_h, p.dilation_h, transposed},
          {p.w, p.s, p.q, p.stride_w, p.pad_w, p.dilation_w, transposed}};
}

// Sets one number of a direction. Padding that keeps the size at stride 1, on both sides or, as of
// a causal filter, in front alone, follows the filter; any other stays. The output follows.
void set(const Direction& a, std::int64_t& number, std::int64_t value) {
  const std::int64_t span = a.span();
  const bool symmetric = a.transposed || a.out == outputs(a.image + 2 * a.pad, span, a.stride);
  const std::int64_t far = symmetric ? a.pad : a.reach() - a.image - a.pad,
                     output_padding = a.image + 2 * a.pad - a.reach();
  const bool same = symmetric && 2 * a.pad == span - 1,
             causal = !symmetric && a.pad == span - 1 && far <= 0;
  number = value;
  if (a.span() != span && same) a.pad = (a.span() - 1) / 2;
  if (a.span() != span && causal) a.pad = a.span() - 1;
  if (a.transposed)
    a.image = a.reach() - 2 * a.pad + output_padding;
  else
    a.out = outputs(a.image + a.pad + (symmetric ? a.pad : far), a.span(), a.stride);
}

// Throws InputError where the filter leaves no output, which validate() would call a size of 0.
void require_output(const Direction& a, char axis) {
  if (a.transposed && a.image < 1)
    throw InputError(
        fmt::format("o{0} would be below 1: padding of {1} leaves nothing of the {2} that i{0} {3} "
                    "gives",
                    axis, a.pad, a.reach(), a.out));
  if (!a.transposed && a.out < 1)
    throw InputError(
        fmt::format("o{0} would be below 1: a filter that spans {1} does not fit into i{0} {2} "
                    "with padding {3}",
                    axis, a.span(), a.image, a.pad));
}

bool one_row(const ConvProblem& p) { return !p.has_depth() && p.h == 1 && p.r == 1 && p.p == 1; }

// Filters, strides and dilations that are equal in depth and height stay so. A problem of one row
// has its width alone.
void set_size(const std::string& axis, std::int64_t value, Following follow, bool transposed,
              ConvProblem& p) {
  std::int64_t &c = transposed ? p.k : p.c, &k = transposed ? p.c : p.k;
  if (axis == "c") {
    if (follow.k_of_c) k = k / c * value;
    if (follow.g_of_c) p.groups = value;
    c = value;
  }
  if (axis == "n") p.n = value;
  if (axis == "k") k = value;
  if (axis == "g") p.groups = value;

  const Directions all = directions(p, transposed);
  const Direction &d = all.d, &h = all.h, &w = all.w;
  const bool depth = p.has_depth(), rows = !one_row(p);
  if (axis == "d") set(d, d.input(), value);
  if (axis == "t") set(d, d.filter, value);
  if (axis == "w") set(w, w.input(), value);
  if (axis == "s") set(w, w.filter, value);
  if (axis == "h")
    for (const Direction& a : {h, w}) set(a, a.input(), value);
  const auto set_all = [&](std::int64_t& (*of)(const Direction&)) {
    if (depth && of(d) == of(h)) set(d, of(d), value);
    if (rows) set(h, of(h), value);
    set(w, of(w), value);
  };
  if (axis == "r") set_all([](const Direction& a) -> std::int64_t& { return a.filter; });
  if (axis == "stride") set_all([](const Direction& a) -> std::int64_t& { return a.stride; });
  if (axis == "dilation") set_all([](const Direction& a) -> std::int64_t& { return a.dilation; });
}

void set_size(const std::string& axis, std::int64_t value, Following follow, RecurrentProblem& p) {
  if (axis == "t") p.t = value;
  if (axis == "n") p.n = value;
  if (axis == "i" || (axis == "h" && follow.i_of_h)) p.i = value;
  if (axis == "h") p.h = value;
  if (axis == "l") p.layers = value;
}

void set_size(const std::string& axis, std::int64_t value, Following follow, LayerProblem& layer) {
  if (const ConvProblem* const conv = layer.problem.conv()) {
    ConvProblem p = *conv;
    set_size(axis, value, follow, layer.transposed, p);
    layer.problem = p;
  } else {
    RecurrentProblem p = *layer.problem.recurrent();
    set_size(axis, value, follow, p);
    layer.problem = p;
  }
}

// Whether all axes together leave a problem that has an output.
void require_output(const LayerProblem& layer) {
  const ConvProblem* const conv = layer.problem.conv();
  if (!conv) return;
  ConvProblem p = *conv;
  const auto [d, h, w] = directions(p, layer.transposed);
  if (p.has_depth()) require_output(d, 'd');
  if (!one_row(p)) require_output(h, 'h');
  require_output(w, 'w');
}

// "n=1 dilation=100"
std::string show_point(const SweepPoint& point, const std::vector<Axis>& axes) {
  std::vector<std::string> values;
  for (std::size_t i = 0; i < axes.size(); ++i)
    values.push_back(axes[i].name + "=" + point.values[i]);
  return fmt::format("{}", fmt::join(values, " "));
}

void set_value(const std::string& axis, const std::string& value, Following follow,
               SweepPoint& point) {
  point.values.push_back(value);
  if (axis == "dtype")
    point.layer.problem.set_dtype(parse_dtype(value));
  else if (axis == "layout")
    point.layout = value;
  else if (axis == "threads")
    point.threads = parse_threads(value);
  else
    set_size(axis, parse_count(value), follow, point.layer);
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
  const auto swept = [&](std::string_view name) {
    return std::count_if(axes.begin(), axes.end(), [&](const Axis& a) { return a.name == name; });
  };
  const ConvProblem* const p = base.layer.problem.conv();
  Following follow;
  if (p) {
    const std::int64_t c = base.layer.transposed ? p->k : p->c;
    follow.g_of_c = p->groups > 1 && p->groups == c && swept("g") == 0;
    follow.k_of_c = follow.g_of_c && swept("k") == 0;
  } else {
    const RecurrentProblem& recurrent = *base.layer.problem.recurrent();
    follow.i_of_h = recurrent.i == recurrent.h && swept("i") == 0;
  }
  for (const Axis& axis : axes) {
    if (swept(axis.name) > 1)
      throw InputError(fmt::format("two axes {}: expected one with all its values", axis.name));
    const bool rows = axis.name == "h", filters = axis.name == "r";
    if (p && (rows || filters) && one_row(*p))
      throw InputError(fmt::format("axis {}: {} has one row: expected {}", axis.name,
                                   base.layer.text(), rows ? "w" : "s"));
    if (p && ((rows && p->h != p->w) || (filters && p->r != p->s)))
      throw InputError(
          fmt::format("axis {} wants a square: {} is none", axis.name, base.layer.text()));
  }
  std::vector<SweepPoint> points{base};
  for (const Axis& axis : axes) {
    std::vector<SweepPoint> more;
    for (const SweepPoint& point : points)
      for (const std::string& value : axis.values)
        set_value(axis.name, value, follow, more.emplace_back(point));
    if (more.size() > most_points)
      throw InputError(fmt::format("more than {} points: expected fewer values", most_points));
    points = std::move(more);
  }
  for (const SweepPoint& point : points) {
    naming(show_point(point, axes), [&] { require_output(point.layer); });
    validate(point.layer.problem);
  }
  return points;
}

}  // namespace convlab
