// Rules of the operators that move values: most become nothing, since a net's layers read them in
// the same order.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "conv/error.h"
#include "nets/onnx/attributes.h"
#include "nets/onnx/translation.h"

namespace convlab::nets::onnx_reader {
namespace {

void nothing(Call& call) { call.put(call.value(0)); }

void cast(Call& call) {
  if (!is_real(integer(call.node, "to", onnx::TensorProto::FLOAT)))
    throw Lacking{"to other than floating point"};
  nothing(call);
}

// Flatten, Reshape, Squeeze and Unsqueeze: the model's dimensions change, the values do not. Those
// that take channels apart and put them together are a shuffle, if a Transpose lies in between.
void reshape(Call& call) {
  const NetValue& x = call.value(0);
  const Dims from = call.dims(x), to = call.output_dims();
  if (from == to) return call.put(x);
  const Shape& s = call.shape(x);
  std::int64_t all = 1;
  for (const std::int64_t d : to)
    if (d < 1 || __builtin_mul_overflow(all, d, &all)) all = -1;
  if (all != s.elements())
    call.contradict(fmt::format("{} into {}: expected a model with an open batch, or its own batch",
                                fmt::join(from, "x"), fmt::join(to, "x")));
  const auto is = [&](NetValue y) {
    return (y.form != Form::plain || y.rank > 2 || s.pixels() == 1) && call.dims(y) == to;
  };
  const auto rank = std::clamp<std::size_t>(to.size(), 2, 5);
  if (x.form == Form::shuffled) {
    if (NetValue y{.id = x.id, .rank = x.rank}; is(y)) {
      y.id = call.add(ChannelShuffle{x.groups}, {x.id});
      return call.put(y);
    }
  } else if (x.form != Form::channels_last || s.pixels() == 1) {
    for (const NetValue& y :
         {NetValue{.id = x.id, .rank = rank}, NetValue{.id = x.id, .form = Form::flat, .rank = 2},
          NetValue{.id = x.id, .form = Form::line, .rank = 1}})
      if (is(y)) return call.put(y);
    if (to.size() == 3 && s.c % to[1] == 0) {
      const NetValue y{.id = x.id, .form = Form::grouped, .rank = 3, .groups = to[1]};
      if (is(y)) return call.put(y);
    }
    if (to.size() > 3 && to.size() <= 6 && to[1] > 0 && s.c % to[1] == 0) {
      const NetValue y{.id = x.id, .form = Form::apart, .rank = to.size() - 1, .groups = to[1]};
      if (is(y)) return call.put(y);
    }
  }
  throw Lacking{"other than to flatten or to shuffle channels"};
}

// PyTorch's exporter writes some views as all elements in one line, gathered in their order.
void gather(Call& call) {
  const NetValue& x = call.value(0);
  const Constant* const c = call.find_constant(1);
  bool in_order = x.form == Form::line && integer(call.node, "axis", 0) == 0 && c &&
                  c->elements() == call.shape(x).elements();
  if (in_order) {
    const std::vector<double> places = call.elements(*c);
    for (std::size_t i = 0; in_order && i < places.size(); ++i) in_order = places[i] == double(i);
  }
  if (!in_order) throw Lacking{"in another order"};
  reshape(call);
}

void transpose(Call& call) {
  const NetValue& x = call.value(0);
  Dims perm = integers(call.node, "perm");
  const std::size_t rank = call.dims(x).size();
  if (perm.empty())
    for (std::size_t i = rank; i-- > 0;) perm.push_back(std::int64_t(i));
  Dims same, to_last{0}, to_front{0, std::int64_t(rank) - 1}, groups;
  for (std::int64_t i = 0; i < std::int64_t(rank); ++i) {
    same.push_back(i);
    if (i > 1) to_last.push_back(i);
    if (i > 0 && i + 1 < std::int64_t(rank)) to_front.push_back(i);
  }
  to_last.push_back(1);
  groups = same;
  if (rank > 3) std::swap(groups[1], groups[2]);
  NetValue y = x;
  if (perm == same)
    return call.put(x);
  else if (x.form == Form::plain && perm == to_last)
    y.form = Form::channels_last;
  else if (x.form == Form::channels_last && perm == to_front)
    y.form = Form::plain;
  else if (x.form == Form::apart && rank > 3 && perm == groups)
    y.form = Form::shuffled;
  else
    throw Lacking{fmt::format("by {}", fmt::join(perm, " "))};
  call.put(std::move(y));
}

void concat(Call& call) {
  const NetValue& one = call.value(0);
  std::int64_t axis = integer(call.node, "axis", 1);
  if (axis < 0) axis += std::int64_t(one.rank);
  std::vector<NodeId> parts;
  for (int i = 0; i < call.node.input_size(); ++i) {
    const NetValue& part = call.value(i);
    const bool of_channels = axis == std::int64_t(call.channel_axis(part)) &&
                             (part.form != Form::flat || call.shape(part).pixels() == 1);
    if (!of_channels || part.rank != one.rank || part.form == Form::apart ||
        part.form == Form::shuffled)
      throw Lacking{"along other axes than the channels"};
    if (part.form != one.form && part.rank > 2) throw Lacking{"of images in different orders"};
    parts.push_back(part.id);
  }
  NetValue y = one;
  if (parts.size() > 1) y.id = call.add(Concat{}, std::move(parts));
  call.put(std::move(y));
}

// `count` channels of a value, under the name of an output of the node.
void put_channels(Call& call, const NetValue& x, std::int64_t first, std::int64_t count,
                  const std::string& output, const std::string& name) {
  NetValue y = x;
  if (first != 0 || count != call.shape(x).c) y.id = call.add(Slice{first, count}, {x.id}, name);
  call.put(output, std::move(y));
}

bool has_channels(const Call& call, const NetValue& x) {
  return x.form == Form::plain || x.form == Form::channels_last ||
         (x.form == Form::flat && call.shape(x).pixels() == 1);
}

void split(Call& call) {
  const NetValue x = call.value(0);
  std::int64_t axis = integer(call.node, "axis", 0);
  if (axis < 0) axis += std::int64_t(x.rank);
  if (!has_channels(call, x) || axis != std::int64_t(call.channel_axis(x)))
    throw Lacking{"along other axes than the channels"};
  std::int64_t first = 0;
  for (const std::string& output : call.node.output()) {
    const auto part = call.known().find(output);
    if (part == call.known().end() || !part->second.complete() ||
        part->second.dims->size() != x.rank)
      throw Lacking{"into sizes that the model computes"};
    const std::int64_t count = (*part->second.dims)[std::size_t(axis)];
    if (call.is_read(output)) put_channels(call, x, first, count, output, output);
    first += count;
  }
}

// Channels from one on, and everything of the other axes.
void slice(Call& call) {
  const NetValue& x = call.value(0);
  const Dims starts = call.sizes("starts", 1), ends = call.sizes("ends", 2),
             steps = call.sizes("steps", 4);
  Dims axes = call.sizes("axes", 3);
  if (axes.empty())
    for (std::size_t i = 0; i < starts.size(); ++i) axes.push_back(std::int64_t(i));
  if (ends.size() != starts.size() || axes.size() != starts.size() ||
      (!steps.empty() && steps.size() != starts.size()))
    call.contradict("starts, ends, axes and steps differ in number");
  if (std::any_of(steps.begin(), steps.end(), [](auto step) { return step != 1; }))
    throw Lacking{"with steps"};
  const Dims sizes = call.dims(x);
  std::int64_t first = 0, count = call.shape(x).c;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const auto rank = std::int64_t(sizes.size());
    const std::int64_t axis = axes[i] < 0 ? axes[i] + rank : axes[i];
    if (axis < 0 || axis >= rank) call.contradict(fmt::format("axis {} of {}", axes[i], rank));
    const std::int64_t n = sizes[std::size_t(axis)];
    const auto place = [n](std::int64_t v) {
      return std::clamp<std::int64_t>(v < 0 ? v + n : v, 0, n);
    };
    const std::int64_t begin = place(starts[i]), end = place(ends[i]);
    if (begin == 0 && end == n) continue;
    if (!has_channels(call, x) || axis != std::int64_t(call.channel_axis(x)))
      throw Lacking{"along other axes than the channels"};
    if (end <= begin) call.contradict(fmt::format("from {} to {} of {} channels", begin, end, n));
    first = begin, count = end - begin;
  }
  put_channels(call, x, first, count, call.node.output(0), "");
}

// Zeros behind the channels are a layer; those around the image wait for a convolution.
void pad(Call& call) {
  const NetValue& x = call.image(0);
  if (const std::string mode = text(call.node, "mode"); !mode.empty() && mode != "constant")
    throw Lacking{"by other values than zeros"};
  const onnx::AttributeProto* const old = attribute(call.node, "value");
  if ((old && old->f() != 0) || (call.has(2) && scalar(call.known(), call.node.input(2)) != 0.))
    throw Lacking{"by other values than zeros"};
  const Dims given = call.sizes("pads", 1), some = call.sizes("axes", 3);
  Dims begin(x.rank, 0), end(x.rank, 0);
  const std::size_t axes = some.empty() ? x.rank : some.size();
  if (given.size() != 2 * axes)
    call.contradict(fmt::format("{} pads for {} axes", given.size(), axes));
  for (std::size_t i = 0; i < axes; ++i) {
    const auto rank = std::int64_t(x.rank);
    const std::int64_t axis = some.empty()  ? std::int64_t(i)
                              : some[i] < 0 ? some[i] + rank
                                            : some[i];
    if (axis < 0 || axis >= rank) call.contradict(fmt::format("axis {} of {}", axis, rank));
    begin[std::size_t(axis)] = given[i];
    end[std::size_t(axis)] = given[axes + i];
  }
  const auto is_negative = [](std::int64_t v) { return v < 0; };
  if (std::any_of(begin.begin(), begin.end(), is_negative) ||
      std::any_of(end.begin(), end.end(), is_negative))
    throw Lacking{"by less than nothing"};
  if (begin[0] != 0 || end[0] != 0 || begin[1] != 0) throw Lacking{"of other axes than the image"};
  NetValue y = x;
  if (end[1] > 0) y.id = call.add(PadChannels{call.shape(x).c + end[1]}, {x.id});
  y.pad_begin.assign(begin.begin() + 2, begin.end());
  y.pad_end.assign(end.begin() + 2, end.end());
  if (std::count(y.pad_begin.begin(), y.pad_begin.end(), 0) +
          std::count(y.pad_end.begin(), y.pad_end.end(), 0) ==
      std::int64_t(2 * (x.rank - 2)))
    y.pad_begin = y.pad_end = {};
  call.put(std::move(y));
}

// With depth as the last of channels it is a pixel shuffle; as the first, channels are to be moved
// before.
void depth_to_space(Call& call) {
  const NetValue& x = call.image(0);
  const std::int64_t f = integer(call.node, "blocksize", 1), channels = call.shape(x).c;
  const std::string mode = text(call.node, "mode");
  if (x.rank != 4 || f < 1 || f > 1024 || channels % (f * f) != 0)
    call.contradict(fmt::format("{} channels over {}x{} pixels", channels, f, f));
  if (f == 1) return call.put(x);
  NodeId id = x.id;
  if (mode != "CRD" && channels > f * f) id = call.add(ChannelShuffle{f * f}, {id});
  call.put({.id = call.add(PixelShuffle{f}, {id}), .rank = x.rank});
}

constexpr std::int64_t largest_image = 1 << 20;  // along one axis

// A factor moves pixels if it is not that of the sizes.
bool is_factor_of(double factor, std::int64_t in, std::int64_t out, bool nearest) {
  if (!nearest) return std::abs(double(in) * factor - double(out)) <= 1e-3;
  if (!(factor > 0) || out > largest_image) return false;
  for (std::int64_t i = 0; i < out; ++i)
    if (std::floor(float(i) / float(factor)) != float(i * in / out)) return false;
  return true;
}

// As PyTorch's interpolate to a size: nearest rounds down, bilinear counts from pixels' middles.
void resize(Call& call) {
  const NetValue& x = call.image(0);
  const Dims out = call.output_dims(), in = call.dims(x);
  if (out == in) return call.put(x);
  if (x.rank != 4 || out.size() != 4 || out[0] != in[0] || out[1] != in[1])
    throw Lacking{"of other axes than height and width"};
  const bool old = call.node.op_type() == "Upsample" || call.node.input_size() < 3;
  const std::string mode = text(call.node, "mode");
  const bool nearest = mode.empty() || mode == "nearest";
  std::string places = text(call.node, "coordinate_transformation_mode"),
              rounds = text(call.node, "nearest_mode");
  if (old) places = "asymmetric", rounds = "floor";
  if (places.empty()) places = "half_pixel";
  if (rounds.empty()) rounds = "round_prefer_floor";
  if (integer(call.node, "antialias", 0) != 0) throw Lacking{"with antialias"};
  if (nearest ? places != "asymmetric" || rounds != "floor"
              : mode != "linear" || (places != "half_pixel" && places != "pytorch_half_pixel"))
    throw Lacking{fmt::format("{}, {}{}", mode.empty() ? "nearest" : mode, places,
                              nearest ? ", " + rounds : "")};
  for (const std::size_t i : {2, 3})  // which this mode counts from the edge
    if (places == "pytorch_half_pixel" && out[i] == 1 && in[i] > 1)
      throw Lacking{"linear, pytorch_half_pixel, to one pixel"};
  std::vector<double> factors;
  if (const onnx::AttributeProto* const a = attribute(call.node, "scales"))
    factors.assign(a->floats().begin(), a->floats().end());
  else if (const auto& given = call.data(old ? 1 : 2))
    factors = *given;
  Dims axes = integers(call.node, "axes");
  if (axes.empty()) axes = {0, 1, 2, 3};
  for (std::size_t i = 0; i < axes.size() && factors.size() == axes.size(); ++i) {
    const auto axis = std::size_t(axes[i] < 0 ? axes[i] + 4 : axes[i]);
    if (axis > 3 || !is_factor_of(factors[i], in[axis], out[axis], nearest))
      throw Lacking{"by a factor that does not give whole pixels"};
  }
  elementwise(call, x,
              Resize{nearest ? ResizeKind::nearest : ResizeKind::bilinear, out[2], out[3]});
}

}  // namespace

void add_reshaping_rules(Rules& rules) {
  const Rules mine{{"Identity", nothing},
                   {"Dropout", nothing},
                   {"Cast", cast},
                   {"Flatten", reshape},
                   {"Reshape", reshape},
                   {"Squeeze", reshape},
                   {"Unsqueeze", reshape},
                   {"Transpose", transpose},
                   {"Concat", concat},
                   {"Split", split},
                   {"Slice", slice},
                   {"Pad", pad},
                   {"DepthToSpace", depth_to_space},
                   {"Resize", resize},
                   {"Upsample", resize},
                   {"Gather", gather}};
  rules.insert(mine.begin(), mine.end());
}

}  // namespace convlab::nets::onnx_reader
