// A convolution in cuDNN's graph interface, and the engines that it offers. Needs no card: tests
// describe one to cuDNN and see what it would do there.
//
// A problem is a graph: one convolution, followed by a pointwise operation for each part of the
// epilogue. This interface cannot forbid TF32, so engines are selected by their notes: math=f32
// takes those that neither use tensor cores nor round their inputs.
#pragma once

#include <cudnn.h>

#include <utility>
#include <vector>

#include "conv/config.h"
#include "conv/problem.h"
#include "kernels_cuda/cudnn/calls.h"
#include "kernels_cuda/cudnn/rules.h"

namespace convlab::cuda {

// A node of cuDNN's object graph: a bag of attributes, then finalized.
class Node {
 public:
  explicit Node(cudnnBackendDescriptorType_t type) {
    check(cudnnBackendCreateDescriptor(type, &descriptor_), "cudnnBackendCreateDescriptor");
  }
  Node(Node&& other) noexcept : descriptor_(std::exchange(other.descriptor_, nullptr)) {}
  ~Node() {
    if (descriptor_) cudnnBackendDestroyDescriptor(descriptor_);
  }
  cudnnBackendDescriptor_t get() const { return descriptor_; }

  Node& set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t count,
            const void* values) {
    check(cudnnBackendSetAttribute(descriptor_, name, type, count, values),
          "cudnnBackendSetAttribute");
    return *this;
  }
  Node& set(cudnnBackendAttributeName_t name, const Node& node) {
    return set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &node.descriptor_);
  }
  Node& set(cudnnBackendAttributeName_t name, const std::vector<std::int64_t>& values) {
    return set(name, CUDNN_TYPE_INT64, std::int64_t(values.size()), values.data());
  }
  Node& finalize() {
    check(cudnnBackendFinalize(descriptor_), "cudnnBackendFinalize");
    return *this;
  }
  // Returns how many values there are, and writes those for which there is room.
  std::int64_t get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                   std::int64_t room, void* values) const {
    std::int64_t count = 0;
    check(cudnnBackendGetAttribute(descriptor_, name, type, room, &count, values),
          "cudnnBackendGetAttribute");
    return count;
  }

 private:
  cudnnBackendDescriptor_t descriptor_ = nullptr;
};

// The card that engines are chosen for: a handle's, or one described to cuDNN.
class CudnnTarget {
 public:
  explicit CudnnTarget(cudnnHandle_t handle) : handle_(handle) {}
  // A card's properties as cuDNN writes them.
  explicit CudnnTarget(const std::string& json);

  void tell_graph(Node&) const;
  void tell_heuristic(Node&) const;
  void tell_plan(Node&) const;

 private:
  cudnnHandle_t handle_ = nullptr;
  std::optional<Node> properties_;
};

// The names of a run's pointers.
enum CudnnTensorId : std::int64_t { id_x = 1, id_w, id_y, id_bias, id_residual, id_between };

// The operations of a problem and the graph of them.
class OperationGraph {
 public:
  OperationGraph(const ConvProblem&, const CudnnTarget&);
  // The heuristic's engine configurations that do this math, best first.
  std::vector<Node> engines(MathType) const;

 private:
  Node output(bool is_last) const;
  void pointwise(cudnnPointwiseMode_t, const Node* other, bool is_last);

  ConvProblem p_;
  const CudnnTarget& target_;
  std::vector<Node> outputs_;  // of each operation
  std::vector<Node> operations_;
  Node graph_{CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR};
};

// The configs of the heuristic's best engines, at most so many of each math type, by their rank
// among those of their math type. Makes no plan, which takes long. Empty if it offers none.
std::vector<Config> list_engines(const ConvProblem&, const CudnnTarget&, int most);

// Throws CudaError if the engine turns out not to support the problem.
Node execution_plan(const Node& engine, const CudnnTarget&);
std::size_t workspace_bytes(const Node& plan);

}  // namespace convlab::cuda
