// The card for the wrappers of its libraries. Kernels need kernel.h only.
#pragma once

#include <memory>

#include "conv/device.h"
#include "kernels_cuda/device/runtime.h"

struct cublasContext;  // the targets of cublasHandle_t and cudnnHandle_t
struct cudnnContext;

namespace convlab::cuda {

class CudaStream : public Stream {
 public:
  explicit CudaStream(int device);
  ~CudaStream() override;
  CudaStream(const CudaStream&) = delete;
  void synchronize() override;
  double time(const std::function<void()>& enqueue, int runs) override;

  int device() const { return device_; }
  cudaStream_t native() const;  // makes the device the calling thread's

  // Set to this stream. Made at their first use, which allocates; later runs of the library do not.
  // Defined in cublas.cpp and cudnn/calls.cpp.
  cublasContext* cublas();
  cudnnContext* cudnn();

 private:
  int device_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t start_ = nullptr, stop_ = nullptr;
  Buffer cublas_workspace_;
  std::unique_ptr<cublasContext, void (*)(cublasContext*)> cublas_{nullptr, nullptr};
  std::unique_ptr<cudnnContext, void (*)(cudnnContext*)> cudnn_{nullptr, nullptr};
};

// Every Stream of this backend is one.
inline CudaStream& cuda_stream(Stream& stream) { return static_cast<CudaStream&>(stream); }

int device_index(const Device&);  // 1 for cuda:1

// Device memory of the runtime's pool, which keeps freed memory for later allocations. Some virtual
// cards have none, and then it is the driver's.
bool has_memory_pools(int device);
Buffer allocate_on(int device, std::size_t bytes);
Buffer allocate_on(int device, std::size_t bytes, bool from_pool);

// Throws as `check` does, for a failed call of a library. Libraries report a lost context as a
// failed execution, so the runtime's error comes first.
[[noreturn]] void throw_library_failed(bool out_of_memory, const std::string& said,
                                       const char* call, const char* file, int line);

}  // namespace convlab::cuda
