// A net from the zoo or an ONNX model, run on arrays.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "conv/types/layout.h"
#include "nets/net.h"

namespace convlab::python {

namespace nb = nanobind;

class InferenceNet {
 public:
  // A name that ends in ".onnx" is a model's file, which has its weights and its own batch; `dims`
  // are its symbolic sizes. Throws InputError for an unknown net, batch or type ("float32",
  // "float64"), and for a model that is no net.
  InferenceNet(const std::string& name, std::optional<std::int64_t> batch, const std::string& dtype,
               const std::map<std::string, std::int64_t>& dims);

  // Plans by the tuning store and, where that has nothing, by predictions. The file decides the
  // number of classes. Throws InputError for a file that does not fit, and the net then stays as it
  // was, and for an ONNX model's net.
  void load_weights(const std::string& path);
  std::string name() const;
  std::int64_t batch() const { return batch_; }
  // Of an ONNX model: what was assumed or left out, a line each.
  const std::vector<std::string>& notes() const { return notes_; }
  const std::vector<std::int64_t>& input_shape() const { return input_shape_; }
  // Scores of any number of images, `batch` at a time. Throws InputError before load_weights.
  nb::object scores(nb::handle images, bool torch);

 private:
  void become(nets::Graph, const std::function<void(nets::Net&)>& load);

  std::int64_t batch_;
  DType dtype_;
  std::string file_;  // of an ONNX model
  std::vector<std::string> notes_;
  std::vector<std::int64_t> input_shape_;  // N C H W, or N C D H W
  nets::Graph graph_;
  std::unique_ptr<nets::Net> net_;  // null before load_weights
  mutable std::mutex mutex_;        // of the graph and the net, which runs one batch at a time
};

}  // namespace convlab::python
