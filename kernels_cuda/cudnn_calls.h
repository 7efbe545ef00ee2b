// What both of cuDNN's interfaces need here: checked calls, handles, types.
#pragma once

#include <cudnn.h>

#include <functional>

#include "conv/problem.h"
#include "kernels_cuda/cuda_device.h"

namespace convlab::cuda {

// Throws OutOfMemory, DeviceLost or CudaError, unless the call succeeded.
void check(cudnnStatus_t, const char* call, const char* file = __builtin_FILE(),
           int line = __builtin_LINE());

// "CUDNN_STATUS_NOT_SUPPORTED: ...", with what cuDNN says of its last failure on this thread.
std::string cudnn_reason(cudnnStatus_t);

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

// For questions that concern no stream of the caller's: one stream a device, used by one thread at
// a time, kept until the process ends.
void with_query_stream(int device, const std::function<void(CudaStream&)>& ask);

}  // namespace convlab::cuda
