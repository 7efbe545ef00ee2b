// cuDNN as a peer: every algorithm of its older interface by name, and its own choice, by its
// heuristic (`cudnn.heuristic`) and by timing all it has (`cudnn.find`).
//
// cuDNN runs as its users would run it: with as much workspace as it wants, filters as KRSC if the
// activations are NHWC, and each math type as a config. Refusals quote its own messages. The
// epilogue takes separate calls, since this interface fuses it for some algorithms only; the graph
// interface (graph.cpp) always fuses it.
#include <cuda_runtime.h>
#include <cudnn.h>
#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "conv/error.h"
#include "conv/optional/plan_note.h"
#include "kernels_cuda/algos.h"
#include "kernels_cuda/cudnn/plan.h"
#include "kernels_cuda/vendor.h"

namespace convlab::cuda {
namespace {

using Filter =
    Descriptor<cudnnFilterDescriptor_t, cudnnCreateFilterDescriptor, cudnnDestroyFilterDescriptor>;
using Convolution = Descriptor<cudnnConvolutionDescriptor_t, cudnnCreateConvolutionDescriptor,
                               cudnnDestroyConvolutionDescriptor>;
using Activation = Descriptor<cudnnActivationDescriptor_t, cudnnCreateActivationDescriptor,
                              cudnnDestroyActivationDescriptor>;

// A problem as cuDNN's descriptors. Sizes fit in int: refuse_shape has checked.
struct Described {
  Tensor x, y, bias;
  Filter w;
  Convolution conv;
  Activation relu;

  explicit Described(const ConvProblem& p) {
    const bool nhwc = p.x_layout == Layout::nhwc;
    const cudnnTensorFormat_t format = nhwc ? CUDNN_TENSOR_NHWC : CUDNN_TENSOR_NCHW;
    const cudnnDataType_t type = data_type(p.dtype);
    check(cudnnSetTensor4dDescriptor(x, format, type, int(p.n), int(p.c), int(p.h), int(p.w)),
          "cudnnSetTensor4dDescriptor");
    check(cudnnSetTensor4dDescriptor(y, format, type, int(p.n), int(p.k), int(p.p), int(p.q)),
          "cudnnSetTensor4dDescriptor");
    check(cudnnSetTensor4dDescriptor(bias, format, type, 1, int(p.k), 1, 1),
          "cudnnSetTensor4dDescriptor");
    check(cudnnSetFilter4dDescriptor(w, type, format, int(p.k), int(p.c / p.groups), int(p.r),
                                     int(p.s)),
          "cudnnSetFilter4dDescriptor");
    check(cudnnSetConvolution2dDescriptor(conv, int(p.pad_h), int(p.pad_w), int(p.stride_h),
                                          int(p.stride_w), int(p.dilation_h), int(p.dilation_w),
                                          CUDNN_CROSS_CORRELATION, sum_type(p.dtype)),
          "cudnnSetConvolution2dDescriptor");
    check(cudnnSetConvolutionGroupCount(conv, int(p.groups)), "cudnnSetConvolutionGroupCount");
    check(cudnnSetActivationDescriptor(relu, CUDNN_ACTIVATION_RELU, CUDNN_PROPAGATE_NAN, 0),
          "cudnnSetActivationDescriptor");
  }
  void set_math(cudnnMathType_t math) {
    check(cudnnSetConvolutionMathType(conv, math), "cudnnSetConvolutionMathType");
  }
};

cudnnMathType_t allowed_math(DType dtype, MathType math) {
  const bool tensor_cores = math == MathType::tf32 || size_of(dtype) == 2;
  return tensor_cores ? CUDNN_TENSOR_OP_MATH : CUDNN_FMA_MATH;
}

cudnnStatus_t get_workspace_bytes(cudnnHandle_t handle, const Described& d, Pass pass, int number,
                                  std::size_t* bytes) {
  switch (pass) {
    case Pass::forward:
      return cudnnGetConvolutionForwardWorkspaceSize(handle, d.x, d.w, d.conv, d.y,
                                                     cudnnConvolutionFwdAlgo_t(number), bytes);
    case Pass::backward_data:
      return cudnnGetConvolutionBackwardDataWorkspaceSize(
          handle, d.w, d.y, d.conv, d.x, cudnnConvolutionBwdDataAlgo_t(number), bytes);
    case Pass::backward_filter:
      return cudnnGetConvolutionBackwardFilterWorkspaceSize(
          handle, d.x, d.y, d.conv, d.w, cudnnConvolutionBwdFilterAlgo_t(number), bytes);
  }
  return CUDNN_STATUS_NOT_SUPPORTED;
}

// A plan's choice: an algorithm of its pass's list, and the math it is allowed.
struct Choice {
  int number = 0;
  cudnnMathType_t math = CUDNN_FMA_MATH;
};

CudnnMath math_of(cudnnMathType_t math) {
  return math == CUDNN_FMA_MATH         ? CudnnMath::fma
         : math == CUDNN_TENSOR_OP_MATH ? CudnnMath::tensor_cores
                                        : CudnnMath::unspecified;
}

template <class Perf>
Choice first_that_works(const std::vector<Perf>& perfs, bool strict_f32) {
  std::vector<CudnnAnswer> answers;
  for (const Perf& a : perfs)
    answers.push_back({a.status == CUDNN_STATUS_SUCCESS, math_of(a.mathType)});
  if (const auto first = first_usable(answers, strict_f32))
    return {int(perfs[*first].algo), perfs[*first].mathType};
  throw CudaError(
      fmt::format("cuDNN has no algorithm for this problem{}", strict_f32 ? " by FMA" : ""));
}

// query(room, &count, answers): one of cuDNN's queries whose answer is a list.
template <class Perf, class Query>
Choice first_answer(const char* call, bool strict_f32, Query&& query) {
  std::vector<Perf> answers(32);
  int count = 0;
  check(query(int(answers.size()), &count, answers.data()), call);
  answers.resize(std::size_t(count));
  return first_that_works(answers, strict_f32);
}

Choice heuristic_choice(cudnnHandle_t handle, const Described& d, Pass pass, bool strict_f32) {
  switch (pass) {
    case Pass::forward:
      return first_answer<cudnnConvolutionFwdAlgoPerf_t>(
          "cudnnGetConvolutionForwardAlgorithm_v7", strict_f32,
          [&](int room, int* count, auto* answers) {
            return cudnnGetConvolutionForwardAlgorithm_v7(handle, d.x, d.w, d.conv, d.y, room,
                                                          count, answers);
          });
    case Pass::backward_data:
      return first_answer<cudnnConvolutionBwdDataAlgoPerf_t>(
          "cudnnGetConvolutionBackwardDataAlgorithm_v7", strict_f32,
          [&](int room, int* count, auto* answers) {
            return cudnnGetConvolutionBackwardDataAlgorithm_v7(handle, d.w, d.y, d.conv, d.x, room,
                                                               count, answers);
          });
    case Pass::backward_filter:
      break;
  }
  return first_answer<cudnnConvolutionBwdFilterAlgoPerf_t>(
      "cudnnGetConvolutionBackwardFilterAlgorithm_v7", strict_f32,
      [&](int room, int* count, auto* answers) {
        return cudnnGetConvolutionBackwardFilterAlgorithm_v7(handle, d.x, d.y, d.conv, d.w, room,
                                                             count, answers);
      });
}

// Zeros would be timed too fast: repeats a megabyte of small random numbers.
void fill_random(const Buffer& buffer, DType dtype, CudaStream& stream) {
  std::mt19937 random(1);
  std::vector<std::uint16_t> block(1 << 19);
  // The upper half of an f32, and all of a bf16, a little below 1 or -1; as f16 about as large, as
  // f64 within [-2, 2].
  for (std::uint16_t& v : block) {
    const std::uint16_t base = dtype == DType::f16 ? 0x3800 : dtype == DType::f64 ? 0x3fe0 : 0x3f00;
    v = std::uint16_t(base | (random() & 0x800f));
  }
  for (std::size_t at = 0; at < buffer.bytes(); at += 2 * block.size())
    check(cudaMemcpyAsync(buffer.data() + at, block.data(),
                          std::min(buffer.bytes() - at, 2 * block.size()), cudaMemcpyHostToDevice,
                          stream.native()),
          "cudaMemcpyAsync");
  stream.synchronize();
}

// Allocates these bytes, or half as many, and so on, until they fit.
Buffer largest_buffer(int device, std::size_t bytes) {
  for (;; bytes /= 2) try {
      return allocate_on(device, bytes);
    } catch (const OutOfMemory&) {
      if (bytes == 0) throw;
    }
}

// Runs all algorithms, with the largest workspace that any of them wants, if it fits.
Choice found_choice(CudaStream& stream, const Described& d, const ConvProblem& p, bool strict_f32) {
  const cudnnHandle_t handle = stream.cudnn();
  std::size_t bytes = 0;
  for (const CudnnAlgo& algo : cudnn_algos) {
    std::size_t needs = 0;
    const int number = algo.number[std::size_t(p.pass)];
    if (number >= 0 &&
        get_workspace_bytes(handle, d, p.pass, number, &needs) == CUDNN_STATUS_SUCCESS)
      bytes = std::max(bytes, needs);
  }
  const auto make = [&](std::int64_t size) {
    Buffer buffer = allocate_on(stream.device(), std::size_t(size));
    fill_random(buffer, p.dtype, stream);
    return buffer;
  };
  const Buffer x = make(p.x_bytes()), w = make(p.filter_bytes()), y = make(p.y_bytes());
  const Buffer workspace = largest_buffer(stream.device(), bytes);
  bytes = workspace.bytes();
  switch (p.pass) {
    case Pass::forward:
      return first_answer<cudnnConvolutionFwdAlgoPerf_t>(
          "cudnnFindConvolutionForwardAlgorithmEx", strict_f32,
          [&](int room, int* count, auto* answers) {
            return cudnnFindConvolutionForwardAlgorithmEx(handle, d.x, x.data(), d.w, w.data(),
                                                          d.conv, d.y, y.data(), room, count,
                                                          answers, workspace.data(), bytes);
          });
    case Pass::backward_data:
      return first_answer<cudnnConvolutionBwdDataAlgoPerf_t>(
          "cudnnFindConvolutionBackwardDataAlgorithmEx", strict_f32,
          [&](int room, int* count, auto* answers) {
            return cudnnFindConvolutionBackwardDataAlgorithmEx(handle, d.w, w.data(), d.y, y.data(),
                                                               d.conv, d.x, x.data(), room, count,
                                                               answers, workspace.data(), bytes);
          });
    case Pass::backward_filter:
      break;
  }
  return first_answer<cudnnConvolutionBwdFilterAlgoPerf_t>(
      "cudnnFindConvolutionBackwardFilterAlgorithmEx", strict_f32,
      [&](int room, int* count, auto* answers) {
        return cudnnFindConvolutionBackwardFilterAlgorithmEx(handle, d.x, x.data(), d.y, y.data(),
                                                             d.conv, d.w, w.data(), room, count,
                                                             answers, workspace.data(), bytes);
      });
}

enum class Chooser : std::uint8_t { name, heuristic, find };

class LegacyPlan : public CudnnPlan, public PlanNote {
 public:
  LegacyPlan(const ConvProblem& p, Chooser chooser, int number, MathType math_type, int device)
      : CudnnPlan(p), chooser_(chooser), described_(p) {
    const cudnnMathType_t math = allowed_math(p.dtype, math_type);
    const bool strict_f32 = p.dtype == DType::f32 && math == CUDNN_FMA_MATH;
    described_.set_math(math);
    with_query_stream(device, [&](CudaStream& stream) {
      choice_ = {number, math};
      if (chooser == Chooser::heuristic)
        choice_ = heuristic_choice(stream.cudnn(), described_, p.pass, strict_f32);
      if (chooser == Chooser::find) choice_ = found_choice(stream, described_, p, strict_f32);
      described_.set_math(choice_.math);
      std::size_t bytes = 0;
      check(get_workspace_bytes(stream.cudnn(), described_, p.pass, choice_.number, &bytes),
            "cudnnGetConvolution...WorkspaceSize");
      workspace_ = cudnn_workspace(p, bytes);
    });
  }

  std::string note() const override {
    if (chooser_ == Chooser::name) return {};
    return choice_text(p_.pass, choice_.number, math_of(choice_.math));
  }

 private:
  void queue(const ConvArgs& args, Workspace workspace, CudaStream& stream) const override {
    switch (p_.pass) {
      case Pass::forward:
        return forward(args, workspace, stream);
      case Pass::backward_data:
        return backward_data(args, workspace, stream);
      case Pass::backward_filter:
        return backward_filter(args, workspace, stream);
    }
  }

  void forward(const ConvArgs& args, Workspace workspace, CudaStream& stream) const {
    const cudnnHandle_t handle = stream.cudnn();
    const Described& d = described_;
    if (p_.epilogue.residual)
      check(cudaMemcpyAsync(args.out, args.residual, std::size_t(p_.y_bytes()),
                            cudaMemcpyDeviceToDevice, stream.native()),
            "cudaMemcpyAsync");
    const bool adds = p_.accumulate || p_.epilogue.residual;
    check(cudnnConvolutionForward(handle, one_.get(), d.x, args.x, d.w, args.w, d.conv,
                                  cudnnConvolutionFwdAlgo_t(choice_.number), workspace.data(),
                                  workspace_.library_bytes, beta(adds), d.y, args.out),
          "cudnnConvolutionForward");
    if (p_.epilogue.bias)
      check(cudnnAddTensor(handle, one_.get(), d.bias, args.bias, one_.get(), d.y, args.out),
            "cudnnAddTensor");
    if (p_.epilogue.activation)
      check(cudnnActivationForward(handle, d.relu, one_.get(), d.y, args.out, zero_.get(), d.y,
                                   args.out),
            "cudnnActivationForward");
  }

  void backward_data(const ConvArgs& args, Workspace workspace, CudaStream& stream) const {
    const Described& d = described_;
    check(cudnnConvolutionBackwardData(stream.cudnn(), one_.get(), d.w, args.w, d.y, args.dy,
                                       d.conv, cudnnConvolutionBwdDataAlgo_t(choice_.number),
                                       workspace.data(), workspace_.library_bytes,
                                       beta(p_.accumulate), d.x, args.out),
          "cudnnConvolutionBackwardData");
  }

  void backward_filter(const ConvArgs& args, Workspace workspace, CudaStream& stream) const {
    const Described& d = described_;
    check(cudnnConvolutionBackwardFilter(stream.cudnn(), one_.get(), d.x, args.x, d.y, args.dy,
                                         d.conv, cudnnConvolutionBwdFilterAlgo_t(choice_.number),
                                         workspace.data(), workspace_.library_bytes,
                                         beta(p_.accumulate), d.w, args.out),
          "cudnnConvolutionBackwardFilter");
  }

  const void* beta(bool adds) const { return (adds ? one_ : zero_).get(); }

  const Chooser chooser_;
  Described described_;
  Choice choice_;
  Scale one_{p_.dtype, 1}, zero_{p_.dtype, 0};
};

class Cudnn : public ConvAlgo {
 public:
  explicit Cudnn(const CudnnAlgo& algo)
      : algo_(&algo), chooser_(Chooser::name), info_(describe(algo.name, 2, "cuDNN's algorithm")) {}
  explicit Cudnn(Chooser chooser)
      : chooser_(chooser),
        info_(chooser == Chooser::find
                  ? describe("find", 3, "what cuDNN finds fastest, running all it has")
                  : describe("heuristic", 3, "what cuDNN's heuristic would choose")) {}

  const AlgoInfo& info() const noexcept override { return info_; }

  std::optional<Refusal> refuse(const ConvProblem& p, Device& device) const override {
    if (algo_)
      if (auto refusal = refuse_pass(*algo_, p.pass)) return refusal;
    if (auto refusal = refuse_shape(p, CudnnInterface::legacy)) return refusal;
    if (auto refusal = refuse_missing_libraries(info_)) return refusal;
    std::string reason;
    if (!supported_math(p, device, &reason).empty()) return {};
    return Refusal{Field::library, {}, reason};
  }

  std::vector<Config> configs(const ConvProblem& p, Device& device) const override {
    std::vector<Config> configs;
    for (const MathType math : supported_math(p, device, nullptr))
      configs.push_back(with_math({}, p.dtype, math));
    return configs;
  }

  bool deterministic(const ConvProblem& p, const Config&) const override {
    return is_deterministic(algo_, p);
  }
  WorkEstimate work(const ConvProblem& p, const Config& config, Device&) const override {
    return cudnn_work(algo_, p, math_type(config));
  }
  std::unique_ptr<ConvPlan> plan(const ConvProblem& p, const Config& config,
                                 Device& device) const override {
    config.require_only({"math"});
    return std::make_unique<LegacyPlan>(p, chooser_, algo_ ? number(p) : 0,
                                        math_type(config, p.dtype, library_math_types),
                                        device_index(device));
  }

 private:
  static AlgoInfo describe(const std::string& name, int version, const char* summary) {
    return {.id = "cudnn." + name,
            .version = version,
            .device = DeviceKind::cuda,
            .origin = Origin::vendor,
            .summary = summary,
            .libraries = {"cudnn"},
            .family = "cudnn"};
  }
  int number(const ConvProblem& p) const { return algo_->number[std::size_t(p.pass)]; }

  // cuDNN supports the math types for which it gives the size of a workspace. Its choosers need one
  // algorithm that supports them.
  std::vector<MathType> supported_math(const ConvProblem& p, Device& device,
                                       std::string* reason) const {
    std::vector<MathType> supported;
    with_query_stream(device_index(device), [&](CudaStream& stream) {
      Described described(p);
      for (const MathType math : math_types(p.dtype)) {
        described.set_math(allowed_math(p.dtype, math));
        const auto works = [&](int number) {
          std::size_t bytes = 0;
          const cudnnStatus_t status =
              get_workspace_bytes(stream.cudnn(), described, p.pass, number, &bytes);
          if (status != CUDNN_STATUS_SUCCESS && reason) *reason = cudnn_reason(status);
          return status == CUDNN_STATUS_SUCCESS;
        };
        const bool any =
            algo_ ? works(number(p))
                  : std::any_of(cudnn_algos.begin(), cudnn_algos.end(), [&](const CudnnAlgo& algo) {
                      const int n = algo.number[std::size_t(p.pass)];
                      return n >= 0 && works(n);
                    });
        if (any) supported.push_back(math);
      }
    });
    return supported;
  }

  const CudnnAlgo* algo_ = nullptr;
  Chooser chooser_;
  AlgoInfo info_;
};

}  // namespace

std::vector<std::unique_ptr<ConvAlgo>> make_cudnn() {
  std::vector<std::unique_ptr<ConvAlgo>> algos;
  for (const CudnnAlgo& algo : cudnn_algos) algos.push_back(std::make_unique<Cudnn>(algo));
  algos.push_back(std::make_unique<Cudnn>(Chooser::heuristic));
  algos.push_back(std::make_unique<Cudnn>(Chooser::find));
  algos.push_back(make_cudnn_graph());
  return algos;
}

}  // namespace convlab::cuda
