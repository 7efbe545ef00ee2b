// cuDNN's recurrent layers as peers, each of its algorithms by name, in f32 by FMA and in f64.
//
// Weights are packed into cuDNN's own space, and its reserve space is what forward saves. Its
// backward_data changes the reserve, which backward_filter reads then: so activations are copied to
// dgates first, and a run can be repeated.
#include <cuda_runtime.h>
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "conv/error.h"
#include "kernels_cuda/cudnn/calls.h"
#include "kernels_cuda/recurrent/algos.h"
#include "kernels_cuda/recurrent/strategies.h"
#include "kernels_cuda/vendor.h"

namespace convlab::cuda {
namespace {

using Dropout = Descriptor<cudnnDropoutDescriptor_t, cudnnCreateDropoutDescriptor,
                           cudnnDestroyDropoutDescriptor>;
using Sequence = Descriptor<cudnnRNNDataDescriptor_t, cudnnCreateRNNDataDescriptor,
                            cudnnDestroyRNNDataDescriptor>;
using Network =
    Descriptor<cudnnRNNDescriptor_t, cudnnCreateRNNDescriptor, cudnnDestroyRNNDescriptor>;

cudnnRNNMode_t mode_of(RecurrentCell cell) {
  switch (cell) {
    case RecurrentCell::rnn_tanh:
      return CUDNN_RNN_TANH;
    case RecurrentCell::rnn_relu:
      return CUDNN_RNN_RELU;
    case RecurrentCell::gru:
      return CUDNN_GRU;
    case RecurrentCell::lstm:
      return CUDNN_LSTM;
  }
  return CUDNN_RNN_TANH;
}

// A problem as cuDNN's descriptors, and the sizes that it then gives. Sizes fit in int.
struct DescribedRnn {
  Dropout none;
  Network network;
  Sequence x, y;
  Tensor state;
  std::size_t weights = 0, workspace = 0, reserve = 0;

  DescribedRnn(const RecurrentProblem& p, cudnnRNNAlgo_t algo, cudnnHandle_t handle) {
    const cudnnDataType_t type = data_type(p.dtype);
    check(cudnnSetDropoutDescriptor(none, handle, 0.0f, nullptr, 0, 0),
          "cudnnSetDropoutDescriptor");
    check(
        cudnnSetRNNDescriptor_v8(network, algo, mode_of(p.cell), CUDNN_RNN_DOUBLE_BIAS,
                                 p.bidirectional ? CUDNN_BIDIRECTIONAL : CUDNN_UNIDIRECTIONAL,
                                 CUDNN_LINEAR_INPUT, type, type, CUDNN_FMA_MATH, int(p.i), int(p.h),
                                 int(p.h), int(p.layers), none, CUDNN_RNN_PADDED_IO_DISABLED),
        "cudnnSetRNNDescriptor_v8");
    const std::vector<int> lengths(std::size_t(p.n), int(p.t));
    const auto describe = [&](const Sequence& sequence, std::int64_t size) {
      check(cudnnSetRNNDataDescriptor(sequence, type, CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED,
                                      int(p.t), int(p.n), int(size), lengths.data(), nullptr),
            "cudnnSetRNNDataDescriptor");
    };
    describe(x, p.i);
    describe(y, p.directions() * p.h);
    const int sizes[]{int(p.layers * p.directions()), int(p.n), int(p.h)};
    const int strides[]{int(p.n * p.h), int(p.h), 1};
    check(cudnnSetTensorNdDescriptor(state, type, 3, sizes, strides), "cudnnSetTensorNdDescriptor");
    if (algo == CUDNN_RNN_ALGO_PERSIST_DYNAMIC)
      check(cudnnBuildRNNDynamic(handle, network, int(p.n)), "cudnnBuildRNNDynamic");
    check(cudnnGetRNNWeightSpaceSize(handle, network, &weights), "cudnnGetRNNWeightSpaceSize");
    const bool training = p.training || p.pass != Pass::forward;
    check(cudnnGetRNNTempSpaceSizes(handle, network,
                                    training ? CUDNN_FWD_MODE_TRAINING : CUDNN_FWD_MODE_INFERENCE,
                                    x, &workspace, &reserve),
          "cudnnGetRNNTempSpaceSizes");
  }
};

class RnnPlan : public RecurrentPlan {
 public:
  RnnPlan(const RecurrentProblem& p, cudnnRNNAlgo_t algo, int device) : p_(p) {
    with_query_stream(device, [&](CudaStream& stream) {
      described_ = std::make_unique<DescribedRnn>(p, algo, stream.cudnn());
    });
  }

  // cuDNN's, then the gradient of its weight space, or dx, which cuDNN always computes.
  std::size_t workspace_bytes() const noexcept override {
    return gradient_at() + (p_.pass == Pass::backward_filter ? described_->weights
                            : p_.pass == Pass::backward_data ? std::size_t(p_.x_bytes())
                                                             : 0);
  }
  std::size_t packed_weights_bytes() const noexcept override {
    return p_.pass == Pass::backward_filter ? 0 : described_->weights;
  }

  void pack_weights(ConstSpan weights, Span packed, Stream& s) const override {
    CudaStream& stream = cuda_stream(s);
    for_each_matrix(stream, packed.data(),
                    [&](std::int64_t at, std::int64_t elements, void* in_cudnn) {
                      copy(in_cudnn, weights.data() + bytes(at), bytes(elements), stream);
                    });
  }

  void run(const RecurrentArgs& args, Workspace workspace, Stream& s) const override {
    CudaStream& stream = cuda_stream(s);
    run_phase(args.phases, 0, s, [&] {
      switch (p_.pass) {
        case Pass::forward:
          return forward(args, workspace, stream);
        case Pass::backward_data:
          return backward_data(args, workspace, stream);
        case Pass::backward_filter:
          return backward_filter(args, workspace, stream);
      }
    });
  }

 private:
  std::int64_t bytes(std::int64_t elements) const { return elements * size_of(p_.dtype); }
  std::size_t gradient_at() const {
    return std::size_t(round_up(std::int64_t(described_->workspace), 256));
  }
  static void copy(void* to, const void* from, std::int64_t bytes, CudaStream& stream) {
    check(cudaMemcpyAsync(to, from, std::size_t(bytes), cudaMemcpyDeviceToDevice, stream.native()),
          "cudaMemcpyAsync");
  }

  // f(position in weights, elements, place in cuDNN's space). Its gates have our order: first those
  // of W x, then those of U h.
  template <class F>
  void for_each_matrix(CudaStream& stream, void* space, F f) const {
    const DescribedRnn& d = *described_;
    const Tensor matrix, bias;
    const std::int64_t gates = p_.gates(), h = p_.h;
    for (std::int64_t layer = 0; layer < p_.layers; ++layer)
      for (std::int64_t direction = 0; direction < p_.directions(); ++direction)
        for (std::int64_t i = 0; i < 2 * gates; ++i) {
          const bool recurrent = i >= gates;
          const std::int64_t gate = i % gates, length = recurrent ? h : p_.input_of(layer);
          void *matrix_at = nullptr, *bias_at = nullptr;
          check(cudnnGetRNNWeightParams(stream.cudnn(), d.network,
                                        int(layer * p_.directions() + direction), d.weights, space,
                                        int(i), matrix, &matrix_at, bias, &bias_at),
                "cudnnGetRNNWeightParams");
          f((recurrent ? p_.w_hh_offset(layer, direction) : p_.weights_offset(layer, direction)) +
                gate * h * length,
            h * length, matrix_at);
          f((recurrent ? p_.b_hh_offset(layer, direction) : p_.b_ih_offset(layer, direction)) +
                gate * h,
            h, bias_at);
        }
  }

  void forward(const RecurrentArgs& args, Workspace workspace, CudaStream& stream) const {
    const DescribedRnn& d = *described_;
    check(
        cudnnRNNForward(stream.cudnn(), d.network,
                        p_.training ? CUDNN_FWD_MODE_TRAINING : CUDNN_FWD_MODE_INFERENCE, nullptr,
                        d.x, args.x, d.y, args.out, d.state, args.h0, args.out_h, d.state, args.c0,
                        args.out_c, d.weights, args.weights, d.workspace, workspace.data(),
                        d.reserve, p_.training ? args.out_activations : nullptr),
        "cudnnRNNForward");
  }

  void backward_data(const RecurrentArgs& args, Workspace workspace, CudaStream& stream) const {
    const DescribedRnn& d = *described_;
    void* const dx = args.out != nullptr ? args.out : workspace.data() + gradient_at();
    copy(args.out_dgates, args.activations, std::int64_t(d.reserve), stream);
    check(cudnnRNNBackwardData_v8(stream.cudnn(), d.network, nullptr, d.y, args.y, args.dy, d.x, dx,
                                  d.state, args.h0, args.dhn, args.out_h, d.state, args.c0,
                                  args.dcn, args.out_c, d.weights, args.weights, d.workspace,
                                  workspace.data(), d.reserve, args.out_dgates),
          "cudnnRNNBackwardData_v8");
  }

  void backward_filter(const RecurrentArgs& args, Workspace workspace, CudaStream& stream) const {
    const DescribedRnn& d = *described_;
    std::byte* const gradient = workspace.data() + gradient_at();
    check(cudaMemsetAsync(gradient, 0, d.weights, stream.native()), "cudaMemsetAsync");
    check(cudnnRNNBackwardWeights_v8(stream.cudnn(), d.network, CUDNN_WGRAD_MODE_ADD, nullptr, d.x,
                                     args.x, d.state, args.h0, d.y, args.y, d.weights, gradient,
                                     d.workspace, workspace.data(), d.reserve,
                                     const_cast<void*>(args.dgates)),
          "cudnnRNNBackwardWeights_v8");
    auto* const out = static_cast<std::byte*>(args.out);
    for_each_matrix(stream, gradient,
                    [&](std::int64_t at, std::int64_t elements, const void* in_cudnn) {
                      copy(out + bytes(at), in_cudnn, bytes(elements), stream);
                    });
  }

  RecurrentProblem p_;
  std::unique_ptr<DescribedRnn> described_;
};

class CudnnRnn : public RecurrentAlgo {
 public:
  CudnnRnn(const char* id, cudnnRNNAlgo_t algo, const char* summary)
      : algo_(algo),
        info_{.id = id,
              .version = 1,
              .device = DeviceKind::cuda,
              .origin = Origin::vendor,
              .summary = summary,
              .libraries = {"cudnn"},
              .family = "cudnn.rnn"} {}

  const AlgoInfo& info() const noexcept override { return info_; }
  std::optional<Refusal> refuse(const RecurrentProblem& p, Device& device) const override {
    if (auto refusal = refuse_missing_libraries(info_)) return refusal;
    if (auto refusal = refuse_sizes(p)) return refusal;
    if (p.recompute) return Refusal{Field::library, {}, "cuDNN saves what its backward pass needs"};
    try {
      RnnPlan(p, algo_, device_index(device));
    } catch (const CudaError& e) {
      return Refusal{Field::library, {}, e.what()};
    }
    return {};
  }
  std::vector<Config> configs(const RecurrentProblem&, Device&) const override {
    return {Config{}};
  }
  bool deterministic(const RecurrentProblem&, const Config&) const override { return false; }
  WorkEstimate work(const RecurrentProblem& asked, const Config&, Device& device) const override {
    RecurrentProblem p = asked;
    p.input_gradient = true;  // cuDNN always computes dx
    WorkEstimate work = recurrent_work(p, device.info(), WeightsForm::as_given, true,
                                       algo_ != CUDNN_RNN_ALGO_STANDARD);
    PhaseWork all{.name = "rnn", .efficiency = 0.3};
    for (const PhaseWork& phase : work.phases) {
      all.flops += phase.flops;
      all.bytes_read += phase.bytes_read;
      all.bytes_written += phase.bytes_written;
      all.waits_s += phase.waits_s;
    }
    work.phases = {all};
    return work;
  }
  std::unique_ptr<RecurrentPlan> plan(const RecurrentProblem& p, const Config& config,
                                      Device& device) const override {
    config.require_only({});
    return std::make_unique<RnnPlan>(p, algo_, device_index(device));
  }
  std::optional<SavedBytes> own_format(const RecurrentProblem& p, Device& device) const override {
    RecurrentProblem training = p;
    training.pass = Pass::forward;
    training.training = true;
    SavedBytes saved;
    with_query_stream(device_index(device), [&](CudaStream& stream) {
      saved.activations = saved.dgates = DescribedRnn(training, algo_, stream.cudnn()).reserve;
    });
    return saved;
  }

 private:
  cudnnRNNAlgo_t algo_;
  AlgoInfo info_;
};

}  // namespace

std::vector<std::unique_ptr<RecurrentAlgo>> make_cudnn_rnn() {
  std::vector<std::unique_ptr<RecurrentAlgo>> algos;
  const auto add = [&](const char* id, cudnnRNNAlgo_t algo, const char* summary) {
    algos.push_back(std::make_unique<CudnnRnn>(id, algo, summary));
  };
  add("cudnn.rnn", CUDNN_RNN_ALGO_STANDARD, "cuDNN's recurrent layer, a product a step");
  add("cudnn.rnn_persist_static", CUDNN_RNN_ALGO_PERSIST_STATIC,
      "cuDNN's recurrent layer, persistent kernels");
  add("cudnn.rnn_persist_dynamic", CUDNN_RNN_ALGO_PERSIST_DYNAMIC,
      "cuDNN's recurrent layer, persistent kernels made for the problem");
  return algos;
}

}  // namespace convlab::cuda
