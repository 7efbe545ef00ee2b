// A net from the zoo that classifies arrays.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "conv/types/layout.h"
#include "nets/net.h"

namespace convlab::python {

namespace nb = nanobind;

class InferenceNet {
 public:
  // Throws InputError for an unknown net, batch or type ("float32", "float64").
  InferenceNet(const std::string& name, std::int64_t batch, const std::string& dtype);

  // Plans by the tuning store and, where that has nothing, by predictions. The file decides the
  // number of classes. Throws InputError for a file that does not fit; the net then stays as it
  // was.
  void load_weights(const std::string& path);
  std::string name() const;
  std::int64_t batch() const { return batch_; }
  const std::vector<std::int64_t>& input_shape() const { return input_shape_; }
  // Scores of any number of images, `batch` at a time. Throws InputError before load_weights.
  nb::object scores(nb::handle images, bool torch);

 private:
  std::int64_t batch_;
  DType dtype_;
  std::vector<std::int64_t> input_shape_;  // N C H W, or N C D H W
  nets::Graph graph_;
  std::unique_ptr<nets::Net> net_;  // null before load_weights
  mutable std::mutex mutex_;        // of the graph and the net, which runs one batch at a time
};

}  // namespace convlab::python
