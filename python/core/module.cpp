// The module convlab._core: what the Python files of convlab call, with arguments that they have
// checked.
#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <new>

#include "autotune/result.h"
#include "conv/error.h"
#include "convolution.h"
#include "engine.h"
#include "graph.h"
#include "kernels_cpu/gemm/openblas.h"
#include "net.h"
#include "segment.h"

namespace convlab::python {
namespace {

void raise(const char* name, const char* what) {
  const nb::object type = nb::module_::import_("convlab.errors").attr(name);
  PyErr_SetString(type.ptr(), what);
}

// An exception class for each exit code of the program (convlab/errors.py).
void translate(const std::exception_ptr& pointer, void*) {
  try {
    std::rethrow_exception(pointer);
  } catch (const InputError& error) {
    raise("InputError", error.what());
  } catch (const OutOfMemory& error) {
    raise("OutOfMemory", error.what());
  } catch (const EnvironmentError& error) {
    raise("EnvironmentError", error.what());
  } catch (const CeilingsInterrupted&) {
    PyErr_SetNone(PyExc_KeyboardInterrupt);
  } catch (const Error& error) {
    raise("EnvironmentError", error.what());
  } catch (const std::bad_alloc&) {
    raise("OutOfMemory", "out of memory");
  }
}

// (problem, pass, dtype, layout of x given, layouts of x and y computed in, algorithm, config,
// whether the store knew its time)
nb::list plans() {
  nb::list all;
  for (const auto& plan : Engine::get().plans()) {
    const ConvProblem &p = plan->problem(), &inner = plan->inner();
    all.append(nb::make_tuple(to_text(p), std::string(to_string(p.pass)),
                              std::string(to_string(p.dtype)), std::string(to_string(p.x_layout)),
                              std::string(to_string(inner.x_layout)),
                              std::string(to_string(inner.y_layout)), plan->plan().algo,
                              plan->plan().config.text(), plan->plan().measured));
  }
  return all;
}

void forget() {
  const nb::gil_scoped_release released;
  Engine::get().forget();
}

void add_graph(nb::module_& m) {
  using G = GraphBuilder;
  using nb::literals::operator""_a;
  using Text = const std::string&;
  using Id = std::int64_t;
  nb::class_<G>(m, "Graph")
      .def(nb::init<Text, const Sizes&>(), "name"_a, "shape"_a)
      .def("conv", &G::conv, "x"_a, "name"_a, "filters"_a, "kernel"_a, "stride"_a = Sizes{1},
           "pad"_a = Sizes{0}, "dilation"_a = Sizes{1}, "groups"_a = 1, "bias"_a = true,
           "matrix"_a = false, "pad_end"_a = Sizes{})
      .def("conv_transpose", &G::conv_transpose, "x"_a, "name"_a, "filters"_a, "kernel"_a,
           "stride"_a = Sizes{1}, "pad"_a = Sizes{0}, "output_pad"_a = Sizes{0},
           "dilation"_a = Sizes{1}, "groups"_a = 1, "bias"_a = true)
      .def("linear", &G::linear, "x"_a, "name"_a, "outputs"_a, "bias"_a = true)
      .def(
          "batch_norm",
          [](G& g, Id x, Text name, double epsilon, double momentum) {
            return g.add(name, nets::BatchNorm{epsilon, momentum}, {x});
          },
          "x"_a, "name"_a, "epsilon"_a = 1e-5, "momentum"_a = 0.1)
      .def(
          "layer_norm",
          [](G& g, Id x, Text name, double epsilon) {
            return g.add(name, nets::LayerNorm{epsilon}, {x});
          },
          "x"_a, "name"_a, "epsilon"_a = 1e-5)
      .def(
          "channel_scale",
          [](G& g, Id x, Text name) { return g.add(name, nets::ChannelScale{}, {x}); }, "x"_a,
          "name"_a)
      .def(
          "group_norm",
          [](G& g, Id x, Text name, Id groups, double epsilon) {
            return g.add(name, nets::GroupNorm{groups, epsilon}, {x});
          },
          "x"_a, "name"_a, "groups"_a, "epsilon"_a = 1e-5)
      .def("activation", &G::activation, "x"_a, "name"_a, "kind"_a, "a"_a.none() = nb::none(),
           "b"_a.none() = nb::none())
      .def(
          "prelu", [](G& g, Id x, Text name) { return g.add(name, nets::PRelu{}, {x}); }, "x"_a,
          "name"_a)
      .def(
          "dropout",
          [](G& g, Id x, Text name, double p, bool whole_images) {
            return g.add(name, nets::Dropout{p, whole_images}, {x});
          },
          "x"_a, "name"_a, "p"_a = 0.5, "whole_images"_a = false)
      .def(
          "max_pool",
          [](G& g, Id x, Text name, const Sizes& kernel, const Sizes& stride, const Sizes& pad,
             bool ceil) { return g.pool(x, name, "max", kernel, stride, pad, ceil); },
          "x"_a, "name"_a, "kernel"_a, "stride"_a, "pad"_a = Sizes{0}, "ceil_mode"_a = false)
      .def(
          "avg_pool",
          [](G& g, Id x, Text name, const Sizes& kernel, const Sizes& stride, const Sizes& pad,
             bool ceil, bool count_padding) {
            return g.pool(x, name, "average", kernel, stride, pad, ceil, count_padding);
          },
          "x"_a, "name"_a, "kernel"_a, "stride"_a, "pad"_a = Sizes{0}, "ceil_mode"_a = false,
          "count_padding"_a = true)
      .def(
          "global_avg_pool",
          [](G& g, Id x, Text name) { return g.add(name, nets::GlobalAvgPool{}, {x}); }, "x"_a,
          "name"_a)
      .def(
          "add",
          [](G& g, Text name, const Sizes& terms) { return g.add(name, nets::Add{}, terms); },
          "name"_a, "terms"_a)
      .def(
          "concat",
          [](G& g, Text name, const Sizes& parts) { return g.add(name, nets::Concat{}, parts); },
          "name"_a, "parts"_a)
      .def(
          "gate",
          [](G& g, Text name, Id x, Id gate) {
            return g.add(name, nets::Gate{}, {x, gate});
          },
          "name"_a, "x"_a, "gate"_a)
      .def(
          "slice",
          [](G& g, Id x, Text name, Id first, Id channels) {
            return g.add(name, nets::Slice{first, channels}, {x});
          },
          "x"_a, "name"_a, "first"_a, "channels"_a)
      .def(
          "shuffle",
          [](G& g, Id x, Text name, Id groups) {
            return g.add(name, nets::ChannelShuffle{groups}, {x});
          },
          "x"_a, "name"_a, "groups"_a)
      .def(
          "pad_channels",
          [](G& g, Id x, Text name, Id channels) {
            return g.add(name, nets::PadChannels{channels}, {x});
          },
          "x"_a, "name"_a, "channels"_a)
      .def(
          "pixel_shuffle",
          [](G& g, Id x, Text name, Id factor) {
            return g.add(name, nets::PixelShuffle{factor}, {x});
          },
          "x"_a, "name"_a, "factor"_a)
      .def("resize", &G::resize, "x"_a, "name"_a, "kind"_a, "h"_a, "w"_a)
      .def(
          "lrn",
          [](G& g, Id x, Text name, Id size, double alpha, double beta, double k) {
            return g.add(name, nets::LocalResponseNorm{size, alpha, beta, k}, {x});
          },
          "x"_a, "name"_a, "size"_a, "alpha"_a, "beta"_a, "k"_a)
      .def("shape", [](const G& g, Id node) { return nb::tuple(nb::cast(g.shape(node))); });
}

void add_segment(nb::module_& m) {
  using nb::literals::operator""_a;
  nb::class_<Segment>(m, "Segment")
      .def(
          "__init__",
          [](Segment* self, const GraphBuilder& graph, bool training, bool input_gradient,
             std::string dtype, std::optional<double> max_error, std::int64_t threads,
             bool channels_last, std::uint64_t seed) {
            new (self) Segment(graph, {training, input_gradient, std::move(dtype), max_error,
                                       threads, seed, channels_last});
          },
          "graph"_a, "training"_a, "input_gradient"_a, "dtype"_a = "float32",
          "max_error"_a.none() = 1e-4, "threads"_a = 0, "channels_last"_a = false, "seed"_a = 0)
      .def("parameters", &Segment::parameters)
      .def("set", &Segment::set, "index"_a, "array"_a.none())
      .def("use", &Segment::use, "index"_a, "array"_a.none())
      .def("changed", &Segment::changed)
      .def("get", &Segment::get, "index"_a, "torch"_a = false)
      .def("forward", &Segment::forward, "x"_a.none(), "torch"_a)
      .def("backward", &Segment::backward, "dy"_a.none(), "torch"_a)
      .def("gradients", &Segment::gradients, "torch"_a)
      .def("forwards", &Segment::forwards)
      .def("run", &Segment::run)
      .def("run_backward", &Segment::run_backward)
      .def("plan", &Segment::plan)
      .def("problems", &Segment::problems);
}

}  // namespace
}  // namespace convlab::python

NB_MODULE(_core, m) {
  using namespace convlab::python;
  // Of what still lives when the interpreter ends, which is no fault: a loss with its graph, say.
  nb::set_leak_warnings(false);
  nb::register_exception_translator(translate);

  nb::class_<Window>(m, "Window")
      .def(nb::init<Sizes, Sizes, Sizes, Sizes, std::int64_t>(), nb::arg("stride"),
           nb::arg("pad_front"), nb::arg("pad_back"), nb::arg("dilation"), nb::arg("groups"));
  m.def(
      "forward",
      [](nb::handle x, nb::handle w, nb::handle bias, const Window& window, std::string algo,
         std::string activation, bool torch) {
        return forward(x, w, bias, window, {std::move(algo), std::move(activation), torch});
      },
      nb::arg("x").none(), nb::arg("w").none(), nb::arg("bias").none(), nb::arg("window"),
      nb::arg("algo"), nb::arg("activation"), nb::arg("torch"));
  nb::class_<ForwardCall>(m, "ForwardCall")
      .def("shape", [](const ForwardCall& call) { return nb::tuple(nb::cast(call.shape())); })
      .def("is_channels_last", &ForwardCall::is_channels_last)
      .def("run", &ForwardCall::run);
  m.def(
      "forward_call",
      [](nb::handle x, nb::handle w, nb::handle bias, const Window& window, std::string algo,
         std::string activation) {
        return ForwardCall::of(x, w, bias, window, {std::move(algo), std::move(activation), true});
      },
      nb::arg("x").none(), nb::arg("w").none(), nb::arg("bias").none(), nb::arg("window"),
      nb::arg("algo"), nb::arg("activation"));
  m.def("input_gradient", [](const Sizes& size, nb::handle w, nb::handle grad, const Window& window,
                             std::string algo, bool torch) {
    return input_gradient(size, w, grad, window, {std::move(algo), "", torch});
  });
  m.def("weight_gradient", [](nb::handle x, const Sizes& size, nb::handle grad,
                              const Window& window, std::string algo, bool torch) {
    return weight_gradient(x, size, grad, window, {std::move(algo), "", torch});
  });
  m.def("plans", plans);
  m.def("forget", forget);
  m.def("advisable_openblas_core", [] { return convlab::openblas_info().advisable_core; });

  nb::class_<InferenceNet>(m, "Net")
      .def(nb::init<const std::string&, std::optional<std::int64_t>, const std::string&,
                    const std::map<std::string, std::int64_t>&>(),
           nb::arg("name"), nb::arg("batch").none(), nb::arg("dtype"), nb::arg("dims"))
      .def("load_weights", &InferenceNet::load_weights)
      .def("name", &InferenceNet::name)
      .def("batch", &InferenceNet::batch)
      .def("notes", &InferenceNet::notes)
      .def("input_shape", &InferenceNet::input_shape)
      .def("scores", &InferenceNet::scores);

  add_graph(m);
  add_segment(m);
}
