#include "kernels_cuda/cudnn/calls.h"

#include <fmt/format.h>

#include <map>
#include <mutex>

#include "kernels_cuda/cudnn/rules.h"

namespace convlab::cuda {

constinit LazyLibrary cudnn_library(
    "cuDNN", "libcudnn.so.", CUDNN_MAJOR, CONVLAB_LIBRARY_FOLDER,
    "install cuDNN for this CUDA, or add its folder to LD_LIBRARY_PATH");

std::string cudnn_obstacle() {
  const std::string obstacle = cudnn_library.obstacle();
  return obstacle.empty() ? cudnn_version_obstacle(cudnnGetVersion()) : obstacle;
}

void check(cudnnStatus_t status, const char* call, const char* file, int line) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  const bool out_of_memory = status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED ||
                             status == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
  throw_library_failed(out_of_memory, cudnn_reason(status), call, file, line);
}

std::string cudnn_reason(cudnnStatus_t status) {
  char detail[256] = "";
  cudnnGetLastErrorString(detail, sizeof detail);
  std::string text = detail;
  for (char& c : text)
    if (c == '\n') c = ' ';
  while (text.ends_with(' ')) text.pop_back();
  return text.empty() ? cudnnGetErrorString(status)
                      : fmt::format("{}: {}", cudnnGetErrorString(status), text);
}

cudnnDataType_t data_type(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return CUDNN_DATA_FLOAT;
    case DType::f64:
      return CUDNN_DATA_DOUBLE;
    case DType::f16:
      return CUDNN_DATA_HALF;
    case DType::bf16:
      return CUDNN_DATA_BFLOAT16;
  }
  return CUDNN_DATA_FLOAT;
}

cudnnDataType_t sum_type(DType dtype) {
  return dtype == DType::f64 ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
}

void with_query_stream(int device, const std::function<void(CudaStream&)>& ask) {
  static std::mutex mutex;
  // Never destroyed: CUDA may be gone before static objects are.
  static auto& streams = *new std::map<int, std::unique_ptr<CudaStream>>;
  const std::lock_guard lock(mutex);
  std::unique_ptr<CudaStream>& stream = streams[device];
  if (!stream) stream = std::make_unique<CudaStream>(device);
  stream->native();
  ask(*stream);
}

cudnnContext* CudaStream::cudnn() {
  if (cudnn_) return cudnn_.get();
  const cudaStream_t stream = native();
  cudnnHandle_t handle = nullptr;
  check(cudnnCreate(&handle), "cudnnCreate");
  cudnn_ = {handle, [](cudnnContext* h) { cudnnDestroy(h); }};
  check(cudnnSetStream(handle, stream), "cudnnSetStream");
  return handle;
}

}  // namespace convlab::cuda
