// Shared by both of cuDNN's interfaces: its functions, loaded at their first call; checked calls,
// handles, types.
#pragma once

#include <cudnn.h>

#include <functional>

#include "conv/problem.h"
#include "kernels_cuda/device/cuda_device.h"
#include "kernels_cuda/device/lazy_library.h"

namespace convlab::cuda {

extern LazyLibrary cudnn_library;

CONVLAB_LAZY_FUNCTION(cudnn_library, cudnnActivationForward);
CONVLAB_LAZY_FUNCTION(cudnn_library, cudnnAddTensor);
CONVLAB_LAZY_FUNCTION(cudnn_library, cudnnBackendCreateDescriptor);
CONVLAB_LAZY_FUNCTION(cudnn_library, cudnnBackendDestroyDescriptor);
CONVLAB_LAZY_FUNCTION(cudnn_library, cudnnBackendExecute);
CONVLAB_LAZY_FUNCTION(cudnn_library, cudnnBackendFinalize);
CONVLAB_LAZY_FUNCTION(cudnn_library, cudnnBackendGetAttribute);
CONVLAB_LAZY_FUNCTION(cudnn_library, cudnnBackendSetAttribute);
CONVLAB_LAZY_FUNCTION(cudnn_library, cudnnBuildRNNDynamic);
CONVLAB_LAZY_FUNCTION(cudnn_library, cudnnConvolutionBackwardData);
CONVLAB_LAZY_FUNCTION(cudnn_library, cudnnConvolutionBackwardFilter);
CONVLAB_LAZY_FUNCTION(cudnn_library, cudnnConvolutionForward);
CONVLAB_LAZY_FUNCTION(cudnn_library, cudnnCreate);
CONVLAB_LAZY_FUNCTION(cudnn_library, cudnnCreateActivationDescriptor);
CONVLAB_LAZY_FUNCTION(cudnn_library, cudnnCreateConvolutionDescriptor);
CONVLAB_LAZY_FUNCTION(cudnn_library, cudnnCreateDropoutDescriptor);
CONVLAB_LAZY_FUNCTION(cudnn_library, cudnnCreateFilterDescriptor);
CONVLAB_LAZY_FUNCTION(cudnn_library, cudnnCreateRNNDataDescriptor);
CONVLAB_LAZY_FUNCTION(cudnn_library, cudnnCreateRNNDescriptor);
CONVLAB_LAZY_FUNCTION(cudnn_library, cudnnCreateTensorDescriptor);
CONVLAB_LAZY_FUNCTION(cudnn_library, cudnnDestroy);
CONVLAB_LAZY_FUNCTION(cudnn_library, cudnnDestroyActivationDescriptor);
CONVLAB_LAZY_FUNCTION(cudnn_library, cudnnDestroyConvolutionDescriptor);
CONVLAB_LAZY_FUNCTION(cudnn_library, cudnnDestroyDropoutDescriptor);
CONVLAB_LAZY_FUNCTION(cudnn_library, cudnnDestroyFilterDescriptor);
CONVLAB_LAZY_FUNCTION(cudnn_library, cudnnDestroyRNNDataDescriptor);
CONVLAB_LAZY_FUNCTION(cudnn_library, cudnnDestroyRNNDescriptor);
CONVLAB_LAZY_FUNCTION(cudnn_library, cudnnDestroyTensorDescriptor);
CONVLAB_LAZY_FUNCTION(cudnn_library, cudnnFindConvolutionBackwardDataAlgorithmEx);
CONVLAB_LAZY_FUNCTION(cudnn_library, cudnnFindConvolutionBackwardFilterAlgorithmEx);
CONVLAB_LAZY_FUNCTION(cudnn_library, cudnnFindConvolutionForwardAlgorithmEx);
CONVLAB_LAZY_FUNCTION(cudnn_library, cudnnGetConvolutionBackwardDataAlgorithm_v7);
CONVLAB_LAZY_FUNCTION(cudnn_library, cudnnGetConvolutionBackwardDataWorkspaceSize);
CONVLAB_LAZY_FUNCTION(cudnn_library, cudnnGetConvolutionBackwardFilterAlgorithm_v7);
CONVLAB_LAZY_FUNCTION(cudnn_library, cudnnGetConvolutionBackwardFilterWorkspaceSize);
CONVLAB_LAZY_FUNCTION(cudnn_library, cudnnGetConvolutionForwardAlgorithm_v7);
CONVLAB_LAZY_FUNCTION(cudnn_library, cudnnGetConvolutionForwardWorkspaceSize);
CONVLAB_LAZY_FUNCTION(cudnn_library, cudnnGetErrorString);
CONVLAB_LAZY_FUNCTION(cudnn_library, cudnnGetLastErrorString);
CONVLAB_LAZY_FUNCTION(cudnn_library, cudnnGetRNNTempSpaceSizes);
CONVLAB_LAZY_FUNCTION(cudnn_library, cudnnGetRNNWeightParams);
CONVLAB_LAZY_FUNCTION(cudnn_library, cudnnGetRNNWeightSpaceSize);
CONVLAB_LAZY_FUNCTION(cudnn_library, cudnnGetVersion);
CONVLAB_LAZY_FUNCTION(cudnn_library, cudnnRNNBackwardData_v8);
CONVLAB_LAZY_FUNCTION(cudnn_library, cudnnRNNBackwardWeights_v8);
CONVLAB_LAZY_FUNCTION(cudnn_library, cudnnRNNForward);
CONVLAB_LAZY_FUNCTION(cudnn_library, cudnnSetActivationDescriptor);
CONVLAB_LAZY_FUNCTION(cudnn_library, cudnnSetConvolution2dDescriptor);
CONVLAB_LAZY_FUNCTION(cudnn_library, cudnnSetConvolutionGroupCount);
CONVLAB_LAZY_FUNCTION(cudnn_library, cudnnSetConvolutionMathType);
CONVLAB_LAZY_FUNCTION(cudnn_library, cudnnSetDropoutDescriptor);
CONVLAB_LAZY_FUNCTION(cudnn_library, cudnnSetFilter4dDescriptor);
CONVLAB_LAZY_FUNCTION(cudnn_library, cudnnSetRNNDataDescriptor);
CONVLAB_LAZY_FUNCTION(cudnn_library, cudnnSetRNNDescriptor_v8);
CONVLAB_LAZY_FUNCTION(cudnn_library, cudnnSetStream);
CONVLAB_LAZY_FUNCTION(cudnn_library, cudnnSetTensor4dDescriptor);
CONVLAB_LAZY_FUNCTION(cudnn_library, cudnnSetTensorNdDescriptor);

// Why cuDNN cannot be used here: it is missing or too old. Empty if it can.
std::string cudnn_obstacle();

// Throws OutOfMemory, DeviceLost or CudaError, unless the call succeeded.
void check(cudnnStatus_t, const char* call, const char* file = __builtin_FILE(),
           int line = __builtin_LINE());

// "CUDNN_STATUS_NOT_SUPPORTED: ...", with cuDNN's message about its last failure on this thread.
std::string cudnn_reason(cudnnStatus_t);

// One of cuDNN's descriptors, made and destroyed by the functions named.
template <class T, const auto& create, const auto& destroy>
class Descriptor {
 public:
  Descriptor() { check(create(&descriptor_), "cudnnCreate...Descriptor"); }
  Descriptor(const Descriptor&) = delete;
  ~Descriptor() { destroy(descriptor_); }
  operator T() const { return descriptor_; }

 private:
  T descriptor_ = nullptr;
};
using Tensor =
    Descriptor<cudnnTensorDescriptor_t, cudnnCreateTensorDescriptor, cudnnDestroyTensorDescriptor>;

cudnnDataType_t data_type(DType);
cudnnDataType_t sum_type(DType);  // f32 but for f64

// alpha or beta, of the type cuDNN reads: that of the sums.
class Scale {
 public:
  Scale(DType dtype, double value) : f64_(dtype == DType::f64), d_(value), f_(float(value)) {}
  const void* get() const { return f64_ ? static_cast<const void*>(&d_) : &f_; }

 private:
  bool f64_;
  double d_;
  float f_;
};

// For queries without a stream of the caller's: one stream a device, used by one thread at a time,
// kept until the process ends.
void with_query_stream(int device, const std::function<void(CudaStream&)>& ask);

}  // namespace convlab::cuda
