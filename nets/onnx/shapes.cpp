#include "nets/onnx/shapes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <string_view>
#include <unordered_map>

#include "conv/error.h"
#include "conv/types/half.h"
#include "nets/onnx/attributes.h"

namespace convlab::nets::onnx_reader {
namespace {

constexpr std::size_t few = 1024;  // elements of a tensor that may be a shape

// Their product; -1 if it is unknown or absurd.
std::int64_t product(const Dims& dims) {
  std::int64_t n = 1;
  for (const std::int64_t d : dims)
    if (d < 0 || __builtin_mul_overflow(n, d, &n)) return -1;
  return n;
}

Dims from(const std::vector<double>& data) {
  Dims dims;
  for (const double v : data) dims.push_back(bounded(v));
  return dims;
}

// One node and what is known of the values that it reads.
class Operator {
 public:
  Operator(const onnx::NodeProto& node, Values& values) : node_(node), values_(values) {}

  const onnx::NodeProto& node() const { return node_; }
  int inputs() const { return node_.input_size(); }
  bool has(int i) const { return i < inputs() && !node_.input(i).empty(); }
  const Value& in(int i) const {
    static const Value nothing;
    if (!has(i)) return nothing;
    const auto found = values_.find(node_.input(i));
    return found == values_.end() ? nothing : found->second;
  }
  // The dims of an input that a rule needs; leaves the outputs unknown without them.
  const Dims* dims(int i) const { return in(i).dims ? &*in(i).dims : nullptr; }

  void put(Dims dims, std::optional<std::vector<double>> data = {}, int i = 0) {
    if (i >= node_.output_size()) return;
    for (std::int64_t& d : dims)
      if (d > largest_size) d = -1;
    Value& v = values_[node_.output(i)];
    v.dims = std::move(dims);
    v.data = std::move(data);
  }

  // An attribute in older opsets, an input since.
  std::optional<Dims> axes(const char* name, int input) const {
    if (attribute(node_, name)) return integers(node_, name);
    if (!has(input)) return Dims();
    if (const auto& data = in(input).data) return from(*data);
    return {};
  }
  // From -rank to rank - 1, as all axes are.
  std::size_t axis(std::int64_t axis, std::size_t rank) const {
    const auto n = std::int64_t(rank);
    if (axis < -n || axis >= n)
      throw InputError(
          fmt::format("{}: axis {}: expected {} to {}", describe(node_), axis, -n, n - 1));
    return std::size_t(axis < 0 ? axis + n : axis);
  }
  [[noreturn]] void contradict(const std::string& what) const {
    throw InputError(fmt::format("{}: {}", describe(node_), what));
  }

 private:
  const onnx::NodeProto& node_;
  Values& values_;
};

std::string show(const Dims& dims) { return fmt::format("{}", fmt::join(dims, "x")); }

// ---- Rules: each leaves outputs alone that it cannot know ----

void same(Operator& op) {
  if (const Dims* const x = op.dims(0)) op.put(*x);
}

void same_with_data(Operator& op) {
  if (const Dims* const x = op.dims(0)) op.put(*x, op.in(0).data);
}

void cast(Operator& op) {
  if (!op.dims(0)) return;
  std::optional<std::vector<double>> data = op.in(0).data;
  const std::int64_t to = integer(op.node(), "to", onnx::TensorProto::FLOAT);
  if (data && to == onnx::TensorProto::BOOL)
    for (double& v : *data) v = v != 0;
  else if (data && !is_real(to))
    for (double& v : *data) v = std::trunc(v);
  op.put(*op.dims(0), std::move(data));
}

void rounded(Operator& op) {
  if (!op.dims(0)) return;
  std::optional<std::vector<double>> data = op.in(0).data;
  if (data)
    for (double& v : *data) v = op.node().op_type() == "Ceil" ? std::ceil(v) : std::floor(v);
  op.put(*op.dims(0), std::move(data));
}

std::int64_t broadcast(const Operator& op, std::int64_t a, std::int64_t b) {
  if (a == 1 || a == b) return b;
  if (b == 1) return a;
  if (a < 0 || b < 0) return std::max(a, b);
  op.contradict(fmt::format("sizes {} and {} do not go together", a, b));
}

double arithmetic(std::string_view op, double a, double b) {
  if (op == "Add") return a + b;
  if (op == "Sub") return a - b;
  if (op == "Mul") return a * b;
  if (op == "Max") return std::max(a, b);
  if (op == "Min") return std::min(a, b);
  if (op == "Equal") return a == b;
  if (b == 0) return 0;
  return op == "Mod" ? std::fmod(a, b) : a / b;
}

void elementwise(Operator& op) {
  std::optional<Dims> out;
  for (int i = 0; i < op.inputs(); ++i) {
    const Dims* const x = op.dims(i);
    if (!x) return;
    if (!out) out = *x;
    Dims longer = out->size() >= x->size() ? *out : *x;
    const Dims& shorter = out->size() >= x->size() ? *x : *out;
    const std::size_t more = longer.size() - shorter.size();
    for (std::size_t at = 0; at < shorter.size(); ++at)
      longer[more + at] = broadcast(op, longer[more + at], shorter[at]);
    out = std::move(longer);
  }
  if (!out) return;
  static const std::vector<std::string_view> known{"Add", "Sub",   "Mul", "Div",
                                                   "Mod", "Equal", "Max", "Min"};
  std::optional<std::vector<double>> data;
  const std::string& type = op.node().op_type();
  if (op.inputs() == 2 && op.in(0).data && op.in(1).data &&
      std::find(known.begin(), known.end(), type) != known.end()) {
    const std::vector<double>&a = *op.in(0).data, &b = *op.in(1).data;
    const auto n = std::size_t(std::max<std::int64_t>(product(*out), 0));
    const auto goes = [n](const auto& v) { return v.size() == 1 || v.size() == n; };
    if (n <= few && !a.empty() && !b.empty() && goes(a) && goes(b)) {
      data.emplace();
      for (std::size_t i = 0; i < n && data; ++i) {
        const double x = a[i % a.size()], y = b[i % b.size()], v = arithmetic(type, x, y);
        data->push_back(v);
        // Integers would be rounded, and these may be some: then nothing is known.
        const auto is_whole = [](double value) { return value == std::floor(value); };
        if (type == "Div" && is_whole(x) && is_whole(y) && !is_whole(v)) data.reset();
      }
    }
  }
  op.put(*std::move(out), std::move(data));
}

// Batch and channels, then the image.
Dims image_of(const Dims& x) { return {x.begin() + 2, x.end()}; }
Dims with_image(std::int64_t n, std::int64_t c, const Dims& image) {
  Dims out{n, c};
  out.insert(out.end(), image.begin(), image.end());
  return out;
}
bool known_image(const Dims& x) {
  return x.size() > 2 && std::all_of(x.begin() + 2, x.end(), [](auto d) { return d >= 0; });
}

void convolution(Operator& op) {
  const Dims *const x = op.dims(0), *const w = op.dims(filter_input(op.node()));
  if (!x || !w || !known_image(*x) || w->size() != x->size() || !known_image(*w)) return;
  const Window window = window_of(op.node(), image_of(*x), image_of(*w));
  op.put(with_image((*x)[0], (*w)[0], output_of(window, image_of(*x))));
}

void transposed_convolution(Operator& op) {
  const Dims *const x = op.dims(0), *const w = op.dims(1);
  if (!x || !w || !known_image(*x) || w->size() != x->size() || !known_image(*w)) return;
  Window window = window_of(op.node(), image_of(*x), image_of(*w));
  const std::int64_t channels = (*w)[1] < 0 ? -1 : (*w)[1] * integer(op.node(), "group", 1);
  const Dims image = transposed_output(op.node(), window, image_of(*x));
  op.put(with_image((*x)[0], channels, image));
}

void pooling(Operator& op) {
  const Dims* const x = op.dims(0);
  if (!x || !known_image(*x)) return;
  const Window window = window_of(op.node(), image_of(*x), integers(op.node(), "kernel_shape"));
  const Dims out = with_image(
      (*x)[0], (*x)[1], output_of(window, image_of(*x), integer(op.node(), "ceil_mode", 0) != 0));
  op.put(out);
  op.put(out, {}, 1);
}

void global_pooling(Operator& op) {
  if (const Dims* const x = op.dims(0); x && x->size() > 2)
    op.put(with_image((*x)[0], (*x)[1], Dims(x->size() - 2, 1)));
}

void gemm(Operator& op) {
  const Dims *const a = op.dims(0), *const b = op.dims(1);
  if (!a || !b || a->size() != 2 || b->size() != 2) return;
  op.put({(*a)[integer(op.node(), "transA", 0) ? 1 : 0],
          (*b)[integer(op.node(), "transB", 0) ? 0 : 1]});
}

void matmul(Operator& op) {
  const Dims *const a = op.dims(0), *const b = op.dims(1);
  if (!a || !b || a->size() < 2 || b->size() < 2) return;
  const Dims& longer = a->size() >= b->size() ? *a : *b;
  const Dims& shorter = a->size() >= b->size() ? *b : *a;
  Dims out = longer;
  const std::size_t more = longer.size() - shorter.size();
  for (std::size_t i = 0; i + 2 < shorter.size(); ++i)
    out[more + i] = broadcast(op, longer[more + i], shorter[i]);
  out[out.size() - 2] = (*a)[a->size() - 2];
  out.back() = b->back();
  op.put(std::move(out));
}

void flatten(Operator& op) {
  const Dims* const x = op.dims(0);
  if (!x) return;
  const std::int64_t at = integer(op.node(), "axis", 1);
  const auto rank = std::int64_t(x->size());
  const auto middle = std::clamp<std::int64_t>(at < 0 ? at + rank : at, 0, rank);
  op.put({product({x->begin(), x->begin() + middle}), product({x->begin() + middle, x->end()})});
}

void reshape(Operator& op) {
  const std::optional<Dims> shape = op.axes("shape", 1);
  if (!shape || (!op.has(1) && !attribute(op.node(), "shape"))) return;
  const Dims* const x = op.dims(0);
  Dims out = *shape;
  for (std::size_t i = 0; i < out.size(); ++i)
    if (out[i] == 0 && integer(op.node(), "allowzero", 0) == 0)
      out[i] = x && i < x->size() ? (*x)[i] : -1;
  const auto open = std::find(shape->begin(), shape->end(), -1);
  if (open != shape->end()) {
    const std::size_t at = std::size_t(open - shape->begin());
    out[at] = 1;
    const std::int64_t all = x ? product(*x) : -1, others = product(out);
    out[at] = all >= 0 && others > 0 ? all / others : -1;
  }
  op.put(std::move(out), op.in(0).data);
}

void transpose(Operator& op) {
  const Dims* const x = op.dims(0);
  if (!x) return;
  Dims order = integers(op.node(), "perm");
  if (order.empty())
    for (std::size_t i = x->size(); i-- > 0;) order.push_back(std::int64_t(i));
  if (order.size() != x->size()) op.contradict("perm has not as many axes as its input");
  Dims out;
  for (const std::int64_t axis : order) out.push_back((*x)[op.axis(axis, x->size())]);
  op.put(std::move(out));
}

void squeeze(Operator& op) {
  const Dims* const x = op.dims(0);
  const std::optional<Dims> axes = op.axes("axes", 1);
  if (!x || !axes) return;
  std::vector<bool> drop(x->size());
  for (const std::int64_t axis : *axes) drop[op.axis(axis, x->size())] = true;
  Dims out;
  for (std::size_t i = 0; i < x->size(); ++i)
    if (axes->empty() ? (*x)[i] != 1 : !drop[i]) out.push_back((*x)[i]);
  op.put(std::move(out), op.in(0).data);
}

void unsqueeze(Operator& op) {
  const Dims* const x = op.dims(0);
  const std::optional<Dims> axes = op.axes("axes", 1);
  if (!x || !axes || axes->size() > few) return;
  std::vector<bool> is_new(x->size() + axes->size());
  for (const std::int64_t axis : *axes) is_new[op.axis(axis, is_new.size())] = true;
  Dims out;
  std::size_t next = 0;
  for (const bool added : is_new) out.push_back(added || next >= x->size() ? 1 : (*x)[next++]);
  op.put(std::move(out), op.in(0).data);
}

void concat(Operator& op) {
  const Dims* const first = op.dims(0);
  if (!first || first->empty()) return;
  const std::size_t at = op.axis(integer(op.node(), "axis", 1), first->size());
  Dims out = *first;
  out[at] = 0;
  std::optional<std::vector<double>> data(std::in_place);
  for (int i = 0; i < op.inputs(); ++i) {
    const Dims* const x = op.dims(i);
    if (!x) return;
    if (x->size() != out.size()) op.contradict(fmt::format("{} beside {}", show(*x), show(*first)));
    out[at] = out[at] < 0 || (*x)[at] < 0 ? -1 : out[at] + (*x)[at];
    for (std::size_t d = 0; d < out.size(); ++d) {
      if (d == at || out[d] == (*x)[d]) continue;
      if (out[d] >= 0 && (*x)[d] >= 0)
        op.contradict(fmt::format("{} beside {}", show(*x), show(*first)));
      out[d] = std::max(out[d], (*x)[d]);
    }
    const auto& more = op.in(i).data;
    if (!more || out.size() != 1 || (data && data->size() + more->size() > few)) data.reset();
    if (data) data->insert(data->end(), more->begin(), more->end());
  }
  op.put(std::move(out), std::move(data));
}

void split(Operator& op) {
  const Dims* const x = op.dims(0);
  if (!x || x->empty()) return;
  const std::size_t at = op.axis(integer(op.node(), "axis", 0), x->size());
  const std::optional<Dims> sizes = op.axes("split", 1);
  const int parts = op.node().output_size();
  for (int i = 0; i < parts; ++i) {
    Dims out = *x;
    if (sizes && std::size_t(i) < sizes->size())
      out[at] = (*sizes)[std::size_t(i)];
    else if (out[at] >= 0) {
      const std::int64_t each = (out[at] + parts - 1) / parts;
      out[at] = std::clamp<std::int64_t>(out[at] - i * each, 0, each);
    }
    op.put(std::move(out), {}, i);
  }
}

void slice(Operator& op) {
  const Dims* const x = op.dims(0);
  const std::optional<Dims> starts = op.axes("starts", 1), ends = op.axes("ends", 2);
  std::optional<Dims> axes = op.axes("axes", 3), steps = op.axes("steps", 4);
  if (!x || !starts || !ends || !axes || !steps) return;
  if (axes->empty())
    for (std::size_t i = 0; i < starts->size(); ++i) axes->push_back(std::int64_t(i));
  if (steps->empty()) steps->assign(starts->size(), 1);
  if (ends->size() != starts->size() || axes->size() != starts->size() ||
      steps->size() != starts->size())
    op.contradict("starts, ends, axes and steps differ in number");
  Dims out = *x;
  std::optional<std::vector<double>> data;
  for (std::size_t i = 0; i < starts->size(); ++i) {
    const std::size_t at = op.axis((*axes)[i], x->size());
    const std::int64_t n = (*x)[at], step = (*steps)[i];
    if (n < 0) continue;
    if (step == 0) op.contradict("a step of 0");
    const auto place = [&](std::int64_t v, std::int64_t least, std::int64_t most) {
      return std::clamp(v < 0 ? v + n : v, least, most);
    };
    const std::int64_t begin = place((*starts)[i], 0, step > 0 ? n : n - 1);
    const std::int64_t end = place((*ends)[i], step > 0 ? 0 : -1, n);
    const std::int64_t length = step > 0 ? end - begin : begin - end;
    out[at] = length <= 0 ? 0 : (length - 1) / std::abs(step) + 1;
    if (op.in(0).data && x->size() == 1 && std::int64_t(op.in(0).data->size()) == n) {
      data.emplace();
      for (std::int64_t j = 0; j < out[at]; ++j)
        data->push_back((*op.in(0).data)[std::size_t(begin + j * step)]);
    }
  }
  op.put(std::move(out), std::move(data));
}

void pad(Operator& op) {
  const Dims* const x = op.dims(0);
  const std::optional<Dims> pads = op.axes("pads", 1);
  if (!x || !pads) return;
  std::optional<Dims> axes = op.axes("axes", 3);
  if (!axes) return;
  if (axes->empty())
    for (std::size_t i = 0; i < x->size(); ++i) axes->push_back(std::int64_t(i));
  if (pads->size() != 2 * axes->size())
    op.contradict(fmt::format("{} pads for {} axes", pads->size(), axes->size()));
  Dims out = *x;
  for (std::size_t i = 0; i < axes->size(); ++i) {
    std::int64_t& d = out[op.axis((*axes)[i], x->size())];
    if (d >= 0) d = std::max<std::int64_t>(d + (*pads)[i] + (*pads)[i + axes->size()], 0);
  }
  op.put(std::move(out));
}

// Resize reads roi, scales and sizes; Upsample, and Resize of opset 10, scales alone.
void resize(Operator& op) {
  const Dims* const x = op.dims(0);
  if (!x) return;
  // Others choose one factor for all axes.
  if (const std::string policy = text(op.node(), "keep_aspect_ratio_policy");
      !policy.empty() && policy != "stretch")
    return;
  const bool has_roi = op.node().op_type() == "Resize" && op.inputs() > 2;
  const Value &scales = op.in(has_roi ? 2 : 1), &sizes = op.in(3);
  std::vector<double> factors;
  if (const onnx::AttributeProto* const a = attribute(op.node(), "scales"))
    factors.assign(a->floats().begin(), a->floats().end());
  else if (scales.data)
    factors = *scales.data;
  Dims axes = integers(op.node(), "axes");
  if (axes.empty())
    for (std::size_t i = 0; i < x->size(); ++i) axes.push_back(std::int64_t(i));
  Dims out = *x;
  const Dims given = sizes.data ? from(*sizes.data) : Dims();
  if (given.size() != axes.size() && factors.size() != axes.size()) return;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    std::int64_t& d = out[op.axis(axes[i], x->size())];
    if (given.size() == axes.size())
      d = given[i];
    else if (d >= 0)
      d = bounded(std::floor(double(d) * factors[i]), 0);
  }
  op.put(std::move(out));
}

void reduce(Operator& op) {
  const Dims* const x = op.dims(0);
  std::optional<Dims> axes = op.axes("axes", 1);
  if (!x || !axes) return;
  if (attribute(op.node(), "axis")) axes = Dims{integer(op.node(), "axis", 0)};  // of ArgMax
  const bool all = axes->empty() && integer(op.node(), "noop_with_empty_axes", 0) == 0;
  const bool keeps = integer(op.node(), "keepdims", 1) != 0;
  std::vector<bool> gone(x->size(), all);
  for (const std::int64_t axis : *axes) gone[op.axis(axis, x->size())] = true;
  Dims out;
  for (std::size_t i = 0; i < x->size(); ++i)
    if (!gone[i] || keeps) out.push_back(gone[i] ? 1 : (*x)[i]);
  std::optional<std::vector<double>> data;
  if (op.node().op_type() == "ReduceProd" && op.in(0).data && x->size() == 1 && gone[0])
    data = {std::accumulate(op.in(0).data->begin(), op.in(0).data->end(), 1., std::multiplies<>())};
  op.put(std::move(out), std::move(data));
}

void shape(Operator& op) {
  const Dims* const x = op.dims(0);
  if (!x) return;
  const auto rank = std::int64_t(x->size());
  const auto place = [rank](std::int64_t v) {
    return std::clamp<std::int64_t>(v < 0 ? v + rank : v, 0, rank);
  };
  const std::int64_t begin = place(integer(op.node(), "start", 0));
  const std::int64_t end = std::max(begin, place(integer(op.node(), "end", rank)));
  const Dims part(x->begin() + begin, x->begin() + end);
  if (std::find(part.begin(), part.end(), -1) == part.end())
    op.put({end - begin}, std::vector<double>(part.begin(), part.end()));
  else
    op.put({end - begin});
}

void gather(Operator& op) {
  const Dims *const x = op.dims(0), *const indices = op.dims(1);
  if (!x || !indices || x->empty()) return;
  const std::size_t at = op.axis(integer(op.node(), "axis", 0), x->size());
  Dims out(x->begin(), x->begin() + std::ptrdiff_t(at));
  out.insert(out.end(), indices->begin(), indices->end());
  out.insert(out.end(), x->begin() + std::ptrdiff_t(at) + 1, x->end());
  std::optional<std::vector<double>> data;
  if (const auto& from = op.in(0).data, &which = op.in(1).data; from && which && x->size() == 1) {
    data.emplace();
    for (double i : *which) {
      if (i < 0) i += double(from->size());
      if (i < 0 || i >= double(from->size())) op.contradict(fmt::format("index {}", i));
      data->push_back((*from)[std::size_t(i)]);
    }
  }
  op.put(std::move(out), std::move(data));
}

void constant(Operator& op) {
  if (const onnx::AttributeProto* const a = attribute(op.node(), "value")) {
    Value v = value_of(a->t());
    if (v.dims) op.put(*v.dims, v.data);
  } else if (const onnx::AttributeProto* const one = attribute(op.node(), "value_int")) {
    op.put({}, std::vector<double>{double(one->i())});
  } else if (const onnx::AttributeProto* const real = attribute(op.node(), "value_float")) {
    op.put({}, std::vector<double>{double(real->f())});
  } else if (const onnx::AttributeProto* const many = attribute(op.node(), "value_ints")) {
    op.put({many->ints_size()}, std::vector<double>(many->ints().begin(), many->ints().end()));
  } else if (const onnx::AttributeProto* const reals = attribute(op.node(), "value_floats")) {
    op.put({reals->floats_size()},
           std::vector<double>(reals->floats().begin(), reals->floats().end()));
  }
}

void constant_of_shape(Operator& op) {
  if (!op.in(0).data) return;
  const Dims dims = from(*op.in(0).data);
  const onnx::AttributeProto* const a = attribute(op.node(), "value");
  const std::optional<std::vector<double>> one = a ? value_of(a->t()).data : std::vector<double>{0};
  const std::int64_t n = product(dims);
  if (one && one->size() == 1 && n >= 0 && n <= std::int64_t(few))
    op.put(dims, std::vector<double>(std::size_t(n), one->front()));
  else
    op.put(dims);
}

void expand(Operator& op) {
  const Dims* const x = op.dims(0);
  if (!x || !op.in(1).data) return;
  Dims out = from(*op.in(1).data), in = *x;
  while (in.size() < out.size()) in.insert(in.begin(), 1);
  while (out.size() < in.size()) out.insert(out.begin(), 1);
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = broadcast(op, in[i], out[i]);
  op.put(std::move(out));
}

void tile(Operator& op) {
  const Dims* const x = op.dims(0);
  if (!x || !op.in(1).data || op.in(1).data->size() != x->size()) return;
  Dims out = *x;
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = product({out[i], from(*op.in(1).data)[i]});
  op.put(std::move(out));
}

// DepthToSpace and SpaceToDepth.
void blocks(Operator& op) {
  const Dims* const x = op.dims(0);
  const std::int64_t b = integer(op.node(), "blocksize", 1);
  if (!x || x->size() != 4 || product(*x) < 0 || b < 1 || b > 1024) return;
  const bool to_space = op.node().op_type() == "DepthToSpace";
  const auto image = [&](std::int64_t d) { return to_space ? d * b : d / b; };
  op.put({(*x)[0], to_space ? (*x)[1] / (b * b) : (*x)[1] * b * b, image((*x)[2]), image((*x)[3])});
}

using ShapeRule = void (*)(Operator&);

const std::unordered_map<std::string_view, ShapeRule>& shape_rules() {
  static const std::unordered_map<std::string_view, ShapeRule> all = [] {
    std::unordered_map<std::string_view, ShapeRule> map{{"Conv", convolution},
                                                        {"ConvInteger", convolution},
                                                        {"QLinearConv", convolution},
                                                        {"ConvTranspose", transposed_convolution},
                                                        {"Gemm", gemm},
                                                        {"MatMul", matmul},
                                                        {"Flatten", flatten},
                                                        {"Reshape", reshape},
                                                        {"Transpose", transpose},
                                                        {"Squeeze", squeeze},
                                                        {"Unsqueeze", unsqueeze},
                                                        {"Concat", concat},
                                                        {"Split", split},
                                                        {"Slice", slice},
                                                        {"Pad", pad},
                                                        {"Resize", resize},
                                                        {"Upsample", resize},
                                                        {"Shape", shape},
                                                        {"Gather", gather},
                                                        {"Constant", constant},
                                                        {"ConstantOfShape", constant_of_shape},
                                                        {"Expand", expand},
                                                        {"Tile", tile},
                                                        {"DepthToSpace", blocks},
                                                        {"SpaceToDepth", blocks}};
    map["Identity"] = same_with_data;
    map["Cast"] = cast;
    for (const char* name : {"Floor", "Ceil"}) map[name] = rounded;
    for (const char* name : {"Relu",
                             "LeakyRelu",
                             "Sigmoid",
                             "Tanh",
                             "HardSwish",
                             "HardSigmoid",
                             "Clip",
                             "Elu",
                             "Selu",
                             "Celu",
                             "Gelu",
                             "Mish",
                             "Swish",
                             "Softplus",
                             "Softsign",
                             "ThresholdedRelu",
                             "Exp",
                             "Log",
                             "Sqrt",
                             "Reciprocal",
                             "Abs",
                             "Neg",
                             "Erf",
                             "Sin",
                             "Cos",
                             "Round",
                             "Sign",
                             "Not",
                             "Dropout",
                             "BatchNormalization",
                             "InstanceNormalization",
                             "LayerNormalization",
                             "GroupNormalization",
                             "RMSNormalization",
                             "LpNormalization",
                             "MeanVarianceNormalization",
                             "LRN",
                             "Softmax",
                             "LogSoftmax",
                             "Hardmax",
                             "QuantizeLinear",
                             "DequantizeLinear"})
      map[name] = same;
    for (const char* name : {"Add",   "Sub",         "Mul",   "Div",     "Mod",
                             "Pow",   "Max",         "Min",   "Mean",    "Sum",
                             "Where", "PRelu",       "Equal", "Greater", "GreaterOrEqual",
                             "Less",  "LessOrEqual", "And",   "Or",      "Xor"})
      map[name] = elementwise;
    for (const char* name : {"MaxPool", "AveragePool", "LpPool"}) map[name] = pooling;
    for (const char* name : {"GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"})
      map[name] = global_pooling;
    for (const char* name :
         {"ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2",
          "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare", "ArgMax", "ArgMin"})
      map[name] = reduce;
    return map;
  }();
  return all;
}

// The node or the input that a node's unknown inputs go back to, else the node itself.
std::string to_blame(const onnx::NodeProto& node, const Values& values) {
  for (const std::string& name : node.input())
    if (const auto v = values.find(name);
        v != values.end() && !v->second.dims && !v->second.unknown_since.empty())
      return v->second.unknown_since;
  return describe(node);
}

}  // namespace

bool Value::complete() const {
  return dims && std::find(dims->begin(), dims->end(), -1) == dims->end();
}

std::string name_of(const onnx::NodeProto& node) {
  return node.name().empty() && node.output_size() > 0 ? node.output(0) : node.name();
}

std::string describe(const onnx::NodeProto& node) {
  return fmt::format("{} '{}'", node.op_type(), name_of(node));
}

Value value_of(const onnx::TensorProto& tensor) {
  Value v;
  v.dims.emplace(tensor.dims().begin(), tensor.dims().end());
  for (const std::int64_t d : *v.dims)
    if (d < 0 || d > largest_size)
      throw InputError(fmt::format("tensor '{}': dimension {}: expected 0 to {}", tensor.name(), d,
                                   largest_size));
  const std::int64_t n = product(*v.dims);
  if (n < 0 || n > std::int64_t(few) || tensor.data_location() == onnx::TensorProto::EXTERNAL)
    return v;
  const auto take = [&](const auto& field, auto element) {
    using T = decltype(element);
    std::vector<double> data;
    if (const std::string& raw = tensor.raw_data(); raw.size() == std::size_t(n) * sizeof(T)) {
      for (std::size_t i = 0; i < std::size_t(n); ++i) {
        T value;
        std::memcpy(&value, raw.data() + i * sizeof(T), sizeof(T));
        data.push_back(double(value));
      }
    } else if (field.size() == int(n)) {
      data.assign(field.begin(), field.end());
    } else {
      return;
    }
    v.data = std::move(data);
  };
  switch (tensor.data_type()) {
    case onnx::TensorProto::INT64:
      take(tensor.int64_data(), std::int64_t{});
      break;
    case onnx::TensorProto::INT32:
      take(tensor.int32_data(), std::int32_t{});
      break;
    case onnx::TensorProto::FLOAT:
      take(tensor.float_data(), float{});
      break;
    case onnx::TensorProto::DOUBLE:
      take(tensor.double_data(), double{});
      break;
    case onnx::TensorProto::FLOAT16:
      take(tensor.int32_data(), std::uint16_t{});
      if (v.data)
        for (double& bits : *v.data) bits = double(Float16::from_bits(std::uint16_t(bits)));
      break;
    default:
      break;
  }
  return v;
}

void infer(const onnx::NodeProto& node, Values& values) {
  Values before;  // what the file itself says of the outputs
  for (const std::string& name : node.output())
    if (const auto v = values.find(name); v != values.end()) before.insert(*v);
  const auto rule = shape_rules().find(node.op_type());
  const bool own = node.domain().empty() || node.domain() == "ai.onnx";
  Operator op(node, values);
  if (own && rule != shape_rules().end()) rule->second(op);
  for (const std::string& name : node.output()) {
    if (name.empty()) continue;
    Value& v = values[name];
    const auto said = before.find(name);
    if (said != before.end() && said->second.complete() && !v.complete()) v = said->second;
    if (!v.dims) v.unknown_since = to_blame(node, values);
  }
}

}  // namespace convlab::nets::onnx_reader
