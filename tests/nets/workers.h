// Data-parallel training in one process: each worker is a thread with its own device and net, and
// has its share of the batch.
#pragma once

#include <barrier>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tests/nets/net_lab.h"

namespace convlab::nets {

// An all-reduce among threads, which adds in the order of the workers.
class ThreadSums {
 public:
  explicit ThreadSums(std::size_t workers)
      : given_(workers), everyone_(static_cast<std::ptrdiff_t>(workers)) {}

  void add(std::size_t worker, std::span<double> values);
  void leave() { everyone_.arrive_and_drop(); }  // so that the others need not wait for it

 private:
  std::vector<Values> given_;
  std::barrier<> everyone_;
};

struct WorkersSetting {
  std::function<Graph(std::int64_t batch)> graph;
  std::string algo = "direct";
  Layout layout = Layout::nchw;
  DType dtype = DType::f64;
  std::function<std::unique_ptr<Device>()> device;
  const AlgoRegistry* registry = &cpu_registry();
  bool synchronised = true;
};

struct WorkersResult {
  double loss = 0;                          // mean over the batch
  Values output;                            // of the batch
  std::map<std::string, Values> gradients;  // of the mean loss; that of the input is "input"
  std::map<std::string, Values> parameters;
};

// tanh in place of every ReLU, and the same name. For f32: a ReLU whose input is almost zero lets
// the gradient through or not by its rounding.
Graph smooth(const Graph&);

// Two steps of SGD by cross entropy; the results are the second one's. One worker has no
// synchronisation. Fails the test if workers end with different parameters.
WorkersResult train_on_workers(const WorkersSetting&, std::size_t workers, std::int64_t batch);

// Fails the test where a tensor differs by more than this, relative to its norm.
void expect_same(const WorkersResult& got, const WorkersResult& expected, double tolerance);

}  // namespace convlab::nets
