#include "convolution.h"

#include <fmt/format.h>

#include <array>
#include <optional>

#include "arrays.h"
#include "conv/error.h"
#include "conv/text/names.h"
#include "engine.h"

namespace convlab::python {
namespace {

const char* image_axes(std::size_t dims) { return dims == 3 ? "N C D H W" : "N C H W"; }
const char* filter_axes(std::size_t dims) {
  return dims == 3 ? "K C/groups T R S" : "K C/groups R S";
}

ActivationKind parse_activation(const std::string& name) {
  std::vector<std::string> names;
  for (const ActivationKind kind : all_activations) {
    if (to_string(kind) == name) return kind;
    names.emplace_back(to_string(kind));
  }
  throw InputError(
      fmt::format("activation is '{}': expected one of {}", name, fmt::join(names, ", ")));
}

// The problem of these shapes, checked but for the size of y: forward and in nchw.
ConvProblem problem_of(const std::vector<std::int64_t>& x, const std::vector<std::int64_t>& w,
                       const Window& window) {
  const std::size_t dims = window.stride.size();
  ConvProblem p;
  p.groups = window.groups;
  if (x[1] % p.groups != 0 || w[0] % p.groups != 0)
    throw InputError(
        fmt::format("groups is {}: expected a divisor of x's {} channels and of w's {} filters",
                    p.groups, x[1], w[0]));
  if (w[1] != x[1] / p.groups)
    throw InputError(fmt::format("w is {}: expected {} channels, x's {} in {} group{}", shown(w),
                                 x[1] / p.groups, x[1], p.groups, p.groups == 1 ? "" : "s"));
  p.n = x[0], p.c = x[1], p.k = w[0];
  struct Axis {
    std::int64_t &in, &filter, &out, &stride, &pad, &dilation;
  };
  const std::array<Axis, 3> axes{{{p.d, p.t, p.z, p.stride_d, p.pad_d, p.dilation_d},
                                  {p.h, p.r, p.p, p.stride_h, p.pad_h, p.dilation_h},
                                  {p.w, p.s, p.q, p.stride_w, p.pad_w, p.dilation_w}}};
  for (std::size_t i = 0; i < dims; ++i) {
    const Axis& axis = axes[3 - dims + i];
    axis.in = x[2 + i], axis.filter = w[2 + i];
    axis.stride = window.stride[i], axis.pad = window.pad_front[i];
    axis.dilation = window.dilation[i];
    const std::int64_t padded = axis.in + axis.pad + window.pad_back[i];
    const std::int64_t reach = axis.dilation * (axis.filter - 1) + 1;
    if (reach > padded)
      throw InputError(fmt::format(
          "w spans {} of axis {}, but x has {} with its padding: expected a smaller filter or more "
          "padding",
          reach, 2 + i, padded));
    axis.out = (padded - reach) / axis.stride + 1;
  }
  validate(p);
  return p;
}

std::vector<std::int64_t> output_shape(const ConvProblem& p, std::size_t dims) {
  std::vector<std::int64_t> shape{p.n, p.k};
  if (dims == 3) shape.push_back(p.z);
  shape.insert(shape.end(), {p.p, p.q});
  return shape;
}

void require_size(const std::vector<std::int64_t>& size, const char* name, std::size_t dims,
                  const char* axes) {
  bool sound = size.size() == dims + 2;
  for (const std::int64_t s : size) sound = sound && s >= 1 && s < std::int64_t{1} << 31;
  if (!sound)
    throw InputError(fmt::format("{} is {}: expected {} sizes from 1 to 2147483647, {}", name,
                                 shown(size), dims + 2, axes));
}

// The layout in which the first activation lies, which all others then have: NCHW unless it is
// NHWC.
Layout layout_of(const InputArray& array) {
  return array.is(Layout::nhwc) && !array.is(Layout::nchw) ? Layout::nhwc : Layout::nchw;
}

// One run's memory from the pool: what the plan needs, and copies of arrays that it cannot read as
// they are.
class Operands {
 public:
  explicit Operands(const PreparedConv& conv) : bytes_(conv.scratch_bytes()) {}

  void add(const InputArray& array, Layout layout, const void*& at) {
    if (array.is(layout)) {
      at = array.data();
      return;
    }
    copies_.push_back({&array, layout, &at, bytes_});
    bytes_ += std::size_t(round_up(array.elements() * size_of(array.dtype()), 64));
  }
  std::size_t bytes() const { return bytes_; }
  void copy(const Buffer& scratch) const {
    for (const Copy& c : copies_) {
      std::byte* const to = scratch.data() + c.offset;
      c.array->copy(c.layout, to);
      *c.at = to;
    }
  }

 private:
  struct Copy {
    const InputArray* array;
    Layout layout;
    const void** at;
    std::size_t offset;
  };
  std::vector<Copy> copies_;
  std::size_t bytes_;
};

struct Operand {
  const InputArray* array;
  Layout layout;
  const void* ConvArgs::*at;
};

// Without the GIL, which the caller holds.
nb::object run(const ConvProblem& problem, const Wishes& wishes,
               std::initializer_list<Operand> operands, const std::vector<std::int64_t>& shape) {
  Buffer out;
  {
    const nb::gil_scoped_release released;
    Engine& engine = Engine::get();
    const auto conv = engine.prepared(problem, wishes.algo);
    ConvArgs args;
    Operands all(*conv);
    for (const Operand& o : operands) all.add(*o.array, o.layout, args.*(o.at));
    Buffer scratch = engine.scratch().take(all.bytes(), engine.device());
    out = engine.device().allocate(std::size_t(problem.output_bytes()));
    args.out = out.data();
    all.copy(scratch);
    conv->run(args, scratch.span(), engine.device());
    engine.scratch().give(std::move(scratch));
  }
  const Layout layout = problem.pass == Pass::backward_filter ? Layout::nchw : problem.x_layout;
  return to_python(std::move(out), problem.dtype, shape, layout, wishes.torch);
}

// The arrays of a forward pass, and its problem.
struct ForwardOperands {
  InputArray x, w;
  std::optional<InputArray> bias;
  ConvProblem problem;

  ForwardOperands(nb::handle x_object, nb::handle w_object, nb::handle bias_object,
                  const Window& window, const Wishes& wishes)
      : x(x_object, "x", window.stride.size() + 2, image_axes(window.stride.size())),
        w(w_object, "w", window.stride.size() + 2, filter_axes(window.stride.size())) {
    require_type(w, x.dtype(), "x");
    problem = problem_of(x.shape(), w.shape(), window);
    problem.dtype = x.dtype();
    problem.x_layout = problem.y_layout = layout_of(x);
    if (!wishes.activation.empty())
      problem.epilogue.activation = parse_activation(wishes.activation);
    if (bias_object.is_none()) return;
    bias.emplace(bias_object, "bias", 1, "K");
    require_type(*bias, x.dtype(), "x");
    require_shape(*bias, {problem.k}, "a value for each of w's filters");
    problem.epilogue.bias = true;
  }
};

}  // namespace

nb::object forward(nb::handle x_object, nb::handle w_object, nb::handle bias_object,
                   const Window& window, const Wishes& wishes) {
  const ForwardOperands o(x_object, w_object, bias_object, window, wishes);
  const auto shape = output_shape(o.problem, window.stride.size());
  const Operand of_x{&o.x, o.problem.x_layout, &ConvArgs::x};
  const Operand of_w{&o.w, Layout::nchw, &ConvArgs::w};
  if (!o.bias) return run(o.problem, wishes, {of_x, of_w}, shape);
  return run(o.problem, wishes, {of_x, of_w, {&*o.bias, Layout::nchw, &ConvArgs::bias}}, shape);
}

std::optional<ForwardCall> ForwardCall::of(nb::handle x, nb::handle w, nb::handle bias,
                                           const Window& window, const Wishes& wishes) {
  const ForwardOperands o(x, w, bias, window, wishes);
  if (!o.x.is(o.problem.x_layout) || !o.w.is(Layout::nchw) || (o.bias && !o.bias->is(Layout::nchw)))
    return {};
  return ForwardCall(o.problem, wishes.algo, output_shape(o.problem, window.stride.size()));
}

void ForwardCall::run(std::uintptr_t x, std::uintptr_t w, std::uintptr_t bias,
                      std::uintptr_t y) const {
  const nb::gil_scoped_release released;
  Engine& engine = Engine::get();
  const auto conv = engine.prepared(problem_, algo_);
  ConvArgs args;
  args.x = reinterpret_cast<const void*>(x);
  args.w = reinterpret_cast<const void*>(w);
  args.bias = reinterpret_cast<const void*>(bias);
  args.out = reinterpret_cast<void*>(y);
  Buffer scratch = engine.scratch().take(conv->scratch_bytes(), engine.device());
  conv->run(args, scratch.span(), engine.device());
  engine.scratch().give(std::move(scratch));
}

nb::object input_gradient(const std::vector<std::int64_t>& size, nb::handle w_object,
                          nb::handle grad_object, const Window& window, const Wishes& wishes) {
  const std::size_t dims = window.stride.size();
  require_size(size, "input_size", dims, image_axes(dims));
  const InputArray w(w_object, "w", dims + 2, filter_axes(dims));
  const InputArray grad(grad_object, "grad_output", dims + 2, dims == 3 ? "N K Z P Q" : "N K P Q");
  require_type(grad, w.dtype(), "w");
  ConvProblem p = problem_of(size, w.shape(), window);
  require_shape(grad, output_shape(p, dims), "what such a convolution gives");
  p.dtype = w.dtype();
  p.pass = Pass::backward_data;
  p.x_layout = p.y_layout = layout_of(grad);
  return run(p, wishes, {{&w, Layout::nchw, &ConvArgs::w}, {&grad, p.y_layout, &ConvArgs::dy}},
             size);
}

nb::object weight_gradient(nb::handle x_object, const std::vector<std::int64_t>& size,
                           nb::handle grad_object, const Window& window, const Wishes& wishes) {
  const std::size_t dims = window.stride.size();
  require_size(size, "weight_size", dims, filter_axes(dims));
  const InputArray x(x_object, "x", dims + 2, image_axes(dims));
  const InputArray grad(grad_object, "grad_output", dims + 2, dims == 3 ? "N K Z P Q" : "N K P Q");
  require_type(grad, x.dtype(), "x");
  ConvProblem p = problem_of(x.shape(), size, window);
  require_shape(grad, output_shape(p, dims), "what such a convolution gives");
  p.dtype = x.dtype();
  p.pass = Pass::backward_filter;
  p.x_layout = p.y_layout = layout_of(x);
  return run(p, wishes, {{&x, p.x_layout, &ConvArgs::x}, {&grad, p.y_layout, &ConvArgs::dy}}, size);
}

}  // namespace convlab::python
