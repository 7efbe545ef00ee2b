// The CPU's layer operations besides convolution. One class; its parts are in channel_copy.cpp,
// elementwise.cpp, dropout.cpp, gate.cpp, batch_norm.cpp, pooling.cpp, lrn.cpp, gemm.cpp, loss.cpp,
// optimizer.cpp, layer_norm.cpp (and scaling of channels), channel_shuffle.cpp and resize.cpp.
#pragma once

#include <algorithm>

#include "conv/device.h"
#include "conv/layer_ops.h"
#include "conv/optional/half_ops.h"

namespace convlab::cpu {

// Each in the file that uses it.
std::size_t channel_workspace_bytes(const TensorDesc&);
std::size_t lrn_workspace_bytes(const TensorDesc&, int threads);
std::size_t pixel_workspace_bytes(const TensorDesc&);

class CpuLayerOps : public LayerOps, public HalfOps {
 public:
  explicit CpuLayerOps(const DeviceInfo& info) : threads_(info.threads), l2_bytes_(info.l2_bytes) {}

  std::size_t workspace_bytes(DType, const TensorDesc& desc) const override {
    return std::max({channel_workspace_bytes(desc), lrn_workspace_bytes(desc, threads_),
                     pixel_workspace_bytes(desc)});
  }

  void zero(Span, Stream&) const override;
  void convert_layout(DType, const TensorDesc& from_desc, const void* from,
                      const TensorDesc& to_desc, void* to, Stream&) const override;
  void copy_channels(DType, const ChannelCopy&, const void* from, void* to, Stream&) const override;

  void add(DType, const TensorDesc&, const void* a, const void* b, void* y, Stream&) const override;
  void activation_forward(DType, ActivationKind, const TensorDesc&, const void* x, void* y,
                          Stream&) const override;
  void activation_backward(DType, ActivationKind, const TensorDesc&, const void* value,
                           const void* dy, void* dx, Stream&) const override;
  void dropout(DType, const DropoutDesc&, const void* from, void* to, Stream&) const override;
  void gate_forward(DType, const GateDesc&, const void* x, const void* gate, void* y,
                    Stream&) const override;
  void gate_backward(DType, const GateDesc&, const void* x, const void* gate, const void* dy,
                     void* dx, void* dgate, Stream&) const override;

  void bias_forward(DType, const TensorDesc&, const void* x, const void* bias, void* y, Workspace,
                    Stream&) const override;
  void bias_backward(DType, const TensorDesc&, const void* dy, void* dbias, Workspace,
                     Stream&) const override;
  void batch_norm_moments(DType, const TensorDesc&, const void* x, double* pairs, Workspace,
                          Stream&) const override;
  void batch_norm_training(DType, const BatchNormDesc&, const BatchNormForward&,
                           const BatchNormStatistics&, Workspace, Stream&) const override;
  void batch_norm_inference(DType, const BatchNormDesc&, const BatchNormForward&,
                            const void* running_mean, const void* running_variance, Workspace,
                            Stream&) const override;
  void batch_norm_gradient_sums(DType, const BatchNormDesc&, const BatchNormBackward&,
                                double* pairs, Workspace, Stream&) const override;
  void batch_norm_backward(DType, const BatchNormDesc&, const BatchNormBackward&, Workspace,
                           Stream&) const override;

  void pool_forward(DType, const PoolDesc&, const void* x, void* y, void* index,
                    Stream&) const override;
  void pool_backward(DType, const PoolDesc&, const void* dy, const void* index, void* dx,
                     Stream&) const override;
  void lrn_forward(DType, const LrnDesc&, const void* x, void* y, Workspace,
                   Stream&) const override;
  void lrn_backward(DType, const LrnDesc&, const void* x, const void* dy, void* dx, Workspace,
                    Stream&) const override;

  void gemm(DType, const GemmDesc&, const void* a, const void* b, void* c, Stream&) const override;

  void softmax(DType, const TensorDesc&, const void* x, void* p, Stream&) const override;
  void cross_entropy_forward(DType, const TensorDesc&, const void* x, const std::int32_t* label,
                             void* p, void* loss, Stream&) const override;
  void cross_entropy_backward(DType, const TensorDesc&, const void* p, const std::int32_t* label,
                              double factor, void* dx, Stream&) const override;
  void squared_error_forward(DType, const TensorDesc&, const void* x, const void* target,
                             void* loss, Stream&) const override;
  void squared_error_backward(DType, const TensorDesc&, const void* x, const void* target,
                              double factor, void* dx, Stream&) const override;

  void sgd_update(DType, const SgdDesc&, std::int64_t count, const void* dw, void* w,
                  void* velocity, Stream&) const override;
  void adam_update(DType, const AdamDesc&, std::int64_t count, const void* dw, void* w, void* mean,
                   void* square, Stream&) const override;

  void layer_norm_forward(DType, const LayerNormDesc&, const void* x, const void* scale,
                          const void* shift, void* y, Stream&) const override;
  void layer_norm_backward(DType, const LayerNormDesc&, const LayerNormBackward&, Workspace,
                           Stream&) const override;
  void scale_channels_forward(DType, const TensorDesc&, const void* x, const void* scale, void* y,
                              Stream&) const override;
  void scale_channels_backward(DType, const TensorDesc&, const void* x, const void* dy,
                               const void* scale, void* dx, void* dscale, Workspace,
                               Stream&) const override;
  void shuffle_channels(DType, const TensorDesc&, std::int64_t groups, const void* from, void* to,
                        Stream&) const override;
  void resize_forward(DType, const ResizeDesc&, const void* x, void* y, Stream&) const override;
  void resize_backward(DType, const ResizeDesc&, const void* dy, void* dx, Stream&) const override;

  void activation_forward(DType, const LayerActivation&, const TensorDesc&, const void* x, void* y,
                          Stream&) const override;
  void activation_backward(DType, const LayerActivation&, const TensorDesc&, const void* x,
                           const void* dy, void* dx, Stream&) const override;
  void prelu_forward(DType, const TensorDesc&, const void* x, const void* slope, void* y,
                     Stream&) const override;
  void prelu_backward(DType, const TensorDesc&, const void* x, const void* dy, const void* slope,
                      void* dx, void* dslope, Workspace, Stream&) const override;

  void convert_type(DType from_type, const void* from, DType to_type, void* to, std::int64_t count,
                    Stream&) const override;

 private:
  int threads_;
  std::int64_t l2_bytes_;
};

}  // namespace convlab::cpu
