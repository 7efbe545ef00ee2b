#include "kernels_cuda/cudnn/graph.h"

#include <algorithm>
#include <array>
#include <optional>

namespace convlab::cuda {
namespace {

// Sizes and strides are listed as N C H W in every layout.
Node tensor(std::int64_t id, DType dtype, const std::array<std::int64_t, 4>& sizes, bool nhwc,
            bool is_virtual) {
  const auto [n, c, h, w] = sizes;
  const std::vector<std::int64_t> strides = nhwc
                                                ? std::vector{h * w * c, std::int64_t(1), w * c, c}
                                                : std::vector{c * h * w, h * w, w, std::int64_t(1)};
  const cudnnDataType_t type = is_virtual ? sum_type(dtype) : data_type(dtype);
  const std::int64_t alignment = operand_alignment;
  Node node(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  node.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type)
      .set(CUDNN_ATTR_TENSOR_DIMENSIONS, {n, c, h, w})
      .set(CUDNN_ATTR_TENSOR_STRIDES, strides)
      .set(CUDNN_ATTR_TENSOR_UNIQUE_ID, {id})
      .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, {alignment})
      .set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
  return std::move(node.finalize());
}

Node convolution(const ConvProblem& p) {
  const cudnnDataType_t type = sum_type(p.dtype);
  const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
  const std::int64_t after_h = *padding_after(p.h, p.p, p.r, p.stride_h, p.dilation_h, p.pad_h),
                     after_w = *padding_after(p.w, p.q, p.s, p.stride_w, p.dilation_w, p.pad_w);
  Node node(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  node.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type)
      .set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode)
      .set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, {2})
      .set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, {p.pad_h, p.pad_w})
      .set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, {after_h, after_w})
      .set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, {p.stride_h, p.stride_w})
      .set(CUDNN_ATTR_CONVOLUTION_DILATIONS, {p.dilation_h, p.dilation_w});
  return std::move(node.finalize());
}

// One pass's names for the parts of its operation.
struct OperationNames {
  cudnnBackendDescriptorType_t type;
  cudnnBackendAttributeName_t conv, x, w, y, alpha, beta;
};
OperationNames names_of(Pass pass) {
  switch (pass) {
    case Pass::forward:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
    case Pass::backward_data:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
    case Pass::backward_filter:
      break;
  }
  return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
}

EngineNotes notes_of(const Node& config) {
  Node engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t raw = engine.get();
  config.get(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &raw);
  std::array<cudnnBackendNumericalNote_t, CUDNN_NUMERICAL_NOTE_TYPE_COUNT> notes{};
  const std::int64_t count = engine.get(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                        notes.size(), notes.data());
  EngineNotes found;
  for (std::int64_t i = 0; i < count; ++i) {
    found.tensor_cores |= notes[i] == CUDNN_NUMERICAL_NOTE_TENSOR_CORE;
    found.rounds_inputs |= notes[i] == CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS;
  }
  return found;
}

}  // namespace

CudnnTarget::CudnnTarget(const std::string& json) {
  properties_.emplace(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  properties_
      ->set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, std::int64_t(json.size()),
            json.data())
      .finalize();
}

void CudnnTarget::tell_graph(Node& graph) const {
  if (handle_) graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle_);
}
void CudnnTarget::tell_heuristic(Node& heuristic) const {
  if (properties_) heuristic.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, *properties_);
}
void CudnnTarget::tell_plan(Node& plan) const {
  if (properties_)
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, *properties_);
  else
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle_);
}

OperationGraph::OperationGraph(const ConvProblem& p, const CudnnTarget& target)
    : p_(p), target_(target) {
  const bool nhwc = p.x_layout == Layout::nhwc;
  const Node x = tensor(id_x, p.dtype, {p.n, p.c, p.h, p.w}, nhwc, false),
             w = tensor(id_w, p.dtype, {p.k, p.c / p.groups, p.r, p.s}, nhwc, false),
             conv = convolution(p);
  outputs_.push_back(output(p.epilogue.empty()));
  const cudnnBackendAttributeType_t scale_type =
      p.dtype == DType::f64 ? CUDNN_TYPE_DOUBLE : CUDNN_TYPE_FLOAT;
  const OperationNames names = names_of(p.pass);
  operations_.emplace_back(names.type);
  operations_.back()
      .set(names.conv, conv)
      .set(names.x, x)
      .set(names.w, w)
      .set(names.y, outputs_.back())
      .set(names.alpha, scale_type, 1, Scale(p.dtype, 1).get())
      .set(names.beta, scale_type, 1, Scale(p.dtype, p.accumulate ? 1 : 0).get())
      .finalize();

  // In the order that cuDNN's engines fuse.
  const Epilogue& e = p.epilogue;
  if (e.residual) {
    const Node residual = tensor(id_residual, p.dtype, {p.n, p.k, p.p, p.q}, nhwc, false);
    pointwise(CUDNN_POINTWISE_ADD, &residual, !e.bias && !e.activation);
  }
  if (e.bias) {
    const Node bias = tensor(id_bias, p.dtype, {1, p.k, 1, 1}, nhwc, false);
    pointwise(CUDNN_POINTWISE_ADD, &bias, !e.activation);
  }
  if (e.activation) pointwise(CUDNN_POINTWISE_RELU_FWD, nullptr, true);

  std::vector<cudnnBackendDescriptor_t> all;
  for (const Node& operation : operations_) all.push_back(operation.get());
  graph_.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, std::int64_t(all.size()),
             all.data());
  target.tell_graph(graph_);
  graph_.finalize();
}

std::vector<Node> OperationGraph::engines(MathType math) const {
  const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
  Node heuristic(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristic.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph_)
      .set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
  target_.tell_heuristic(heuristic);
  heuristic.finalize();
  const std::int64_t count =
      heuristic.get(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, nullptr);
  std::vector<Node> answers;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (std::int64_t i = 0; i < count; ++i) {
    answers.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    raw.push_back(answers.back().get());
  }
  const std::int64_t given = heuristic.get(CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                           CUDNN_TYPE_BACKEND_DESCRIPTOR, count, raw.data());
  std::vector<Node> fitting;
  for (std::int64_t i = 0; i < given; ++i)
    if (does_math(p_.dtype, math, notes_of(answers[i]))) fitting.push_back(std::move(answers[i]));
  return fitting;
}

Node OperationGraph::output(bool is_last) const {
  const bool nhwc = p_.x_layout == Layout::nhwc;
  return tensor(is_last ? std::int64_t(id_y) : id_between + std::int64_t(outputs_.size()), p_.dtype,
                {p_.n, p_.k, p_.p, p_.q}, nhwc, !is_last);
}

// Appends an operation on the last one's output; an addition takes another tensor as well.
void OperationGraph::pointwise(cudnnPointwiseMode_t mode, const Node* other, bool is_last) {
  const cudnnDataType_t type = sum_type(p_.dtype);
  Node kind(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  kind.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode)
      .set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &type)
      .finalize();
  Node result = output(is_last);
  operations_.emplace_back(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  Node& operation = operations_.back();
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, kind)
      .set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, outputs_.back())
      .set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, result);
  if (other) operation.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, *other);
  operation.finalize();
  outputs_.push_back(std::move(result));
}

std::vector<Config> list_engines(const ConvProblem& p, const CudnnTarget& target, int most) {
  const OperationGraph graph(p, target);
  std::vector<Config> configs;
  for (const MathType math : math_types(p.dtype)) {
    const auto offered = std::int64_t(graph.engines(math).size());
    for (std::int64_t rank = 0; rank < std::min<std::int64_t>(offered, most); ++rank)
      configs.push_back(with_math({{"rank", rank}}, p.dtype, math));
  }
  return configs;
}

Node execution_plan(const Node& engine, const CudnnTarget& target) {
  Node plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, engine);
  target.tell_plan(plan);
  return std::move(plan.finalize());
}

std::size_t workspace_bytes(const Node& plan) {
  std::int64_t bytes = 0;
  plan.get(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &bytes);
  return std::size_t(bytes);
}

}  // namespace convlab::cuda
