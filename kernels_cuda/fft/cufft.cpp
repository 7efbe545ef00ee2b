// The vendor seam's transforms, by cuFFT.
#include <cuda_runtime.h>
#include <fmt/format.h>

#include <algorithm>
#include <mutex>

#include "kernels_cuda/device/cuda_device.h"
#include "kernels_cuda/fft/cufft_calls.h"
#include "kernels_cuda/vendor.h"

namespace convlab::cuda {

constinit LazyLibrary cufft_library(
    "cuFFT", "libcufft.so.", CUFFT_VER_MAJOR, CONVLAB_LIBRARY_FOLDER,
    "it is part of the CUDA toolkit: add its folder to LD_LIBRARY_PATH");

namespace {

void check(cufftResult result, const char* call, const char* file = __builtin_FILE(),
           int line = __builtin_LINE()) {
  if (result == CUFFT_SUCCESS) return;
  throw_library_failed(result == CUFFT_ALLOC_FAILED, fmt::format("cufftResult {}", int(result)),
                       call, file, line);
}

// One direction of a batch of transforms; the caller provides its work area.
class Plan {
 public:
  Plan(cufftType type, std::int64_t h, std::int64_t w, std::int64_t batch) {
    check(cufftCreate(&plan_), "cufftCreate");
    try {
      check(cufftSetAutoAllocation(plan_, 0), "cufftSetAutoAllocation");
      long long sizes[2] = {h, w};
      // Without embeddings the images, and their half spectra, are contiguous.
      check(cufftMakePlanMany64(plan_, 2, sizes, nullptr, 1, 0, nullptr, 1, 0, type, batch,
                                &workspace_bytes_),
            "cufftMakePlanMany64");
    } catch (...) {
      cufftDestroy(plan_);
      throw;
    }
  }
  Plan(const Plan&) = delete;
  ~Plan() { cufftDestroy(plan_); }

  std::size_t workspace_bytes() const { return workspace_bytes_; }
  cufftHandle on(cudaStream_t stream, void* workspace) const {
    check(cufftSetStream(plan_, stream), "cufftSetStream");
    if (workspace_bytes_ > 0) check(cufftSetWorkArea(plan_, workspace), "cufftSetWorkArea");
    return plan_;
  }

 private:
  cufftHandle plan_ = 0;
  std::size_t workspace_bytes_ = 0;
};

class CufftFft2d : public Fft2d {
 public:
  CufftFft2d(bool f64, std::int64_t h, std::int64_t w, std::int64_t batch)
      : f64_(f64),
        forward_(f64 ? CUFFT_D2Z : CUFFT_R2C, h, w, batch),
        inverse_(f64 ? CUFFT_Z2D : CUFFT_C2R, h, w, batch) {}

  std::size_t workspace_bytes() const override {
    return std::max(forward_.workspace_bytes(), inverse_.workspace_bytes());
  }
  void forward(const void* real, void* complex, Workspace ws, Stream& stream) const override {
    const std::lock_guard lock(mutex_);
    const cufftHandle plan = forward_.on(native_stream(stream), ws.data());
    void* const in = const_cast<void*>(real);  // an out-of-place transform only reads it
    check(
        f64_ ? cufftExecD2Z(plan, static_cast<cufftDoubleReal*>(in),
                            static_cast<cufftDoubleComplex*>(complex))
             : cufftExecR2C(plan, static_cast<cufftReal*>(in), static_cast<cufftComplex*>(complex)),
        "cufftExecR2C");
  }
  void inverse(void* complex, void* real, Workspace ws, Stream& stream) const override {
    const std::lock_guard lock(mutex_);
    const cufftHandle plan = inverse_.on(native_stream(stream), ws.data());
    check(f64_ ? cufftExecZ2D(plan, static_cast<cufftDoubleComplex*>(complex),
                              static_cast<cufftDoubleReal*>(real))
               : cufftExecC2R(plan, static_cast<cufftComplex*>(complex),
                              static_cast<cufftReal*>(real)),
          "cufftExecC2R");
  }

 private:
  bool f64_;
  Plan forward_, inverse_;
  mutable std::mutex mutex_;  // stream and work area are the plan's
};

}  // namespace

std::unique_ptr<Fft2d> make_fft2d(DType dtype, std::int64_t h, std::int64_t w, std::int64_t batch,
                                  Device& device) {
  validate_fft2d(dtype, h, w, batch);
  check(cudaSetDevice(device_index(device)), "cudaSetDevice");
  return std::make_unique<CufftFft2d>(dtype == DType::f64, h, w, batch);
}

}  // namespace convlab::cuda
