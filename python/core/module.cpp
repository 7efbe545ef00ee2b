// The module convlab._core: what the Python files of convlab call, with arguments that they have
// checked.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <new>

#include "autotune/result.h"
#include "conv/error.h"
#include "convolution.h"
#include "engine.h"
#include "kernels_cpu/gemm/openblas.h"
#include "net.h"

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

using Sizes = std::vector<std::int64_t>;

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

}  // namespace
}  // namespace convlab::python

NB_MODULE(_core, m) {
  using namespace convlab::python;
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
      .def(nb::init<const std::string&, std::int64_t, const std::string&>())
      .def("load_weights", &InferenceNet::load_weights)
      .def("name", &InferenceNet::name)
      .def("batch", &InferenceNet::batch)
      .def("input_shape", &InferenceNet::input_shape)
      .def("scores", &InferenceNet::scores);
}
