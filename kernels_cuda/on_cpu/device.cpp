// A device whose kernels are executed on the CPU, in place of a card: the same registry, plans and
// checks run on it.
#include "kernels_cuda/on_cpu/device.h"

#include <algorithm>

#include "conv/error.h"
#include "kernels_cuda/cuda.h"
#include "kernels_cuda/device/ceilings.h"
#include "kernels_cuda/device/nvtx.h"
#include "kernels_cuda/device/runtime.h"
#include "kernels_cuda/device/scan.h"
#include "kernels_cuda/layers/layer_ops.h"
#include "kernels_cuda/on_cpu/allocations.h"

namespace convlab {
namespace {

class OnCpuStream : public Stream {
 public:
  explicit OnCpuStream(const DeviceInfo& card) : block_shared_bytes(card.block_shared_bytes) {}
  void synchronize() override {}
  const std::int64_t block_shared_bytes;
};

class OnCpuDevice : public Device,
                    public cuda::NvtxRanges,
                    public CeilingDevice,
                    public ScanningDevice {
 public:
  explicit OnCpuDevice(const DeviceInfo& info) : info_(info) {}

  const DeviceInfo& info() const noexcept override { return info_; }

  Buffer allocate(std::size_t bytes) override {
    if (bytes > std::size_t(info_.memory_bytes)) throw OutOfMemory("more than 1 GB on the CPU");
    return Buffer(on_cpu::allocate(bytes), bytes, &on_cpu::release);
  }
  Buffer allocate_pinned(std::size_t bytes) override { return allocate(bytes); }
  void copy_to_device(std::byte* to, ConstSpan from, Stream&) override {
    std::copy(from.begin(), from.end(), to);
  }
  void copy_to_host(Span to, const std::byte* from, Stream&) override {
    std::copy_n(from, to.size(), to.data());
  }
  void fill(Span span, std::byte value, Stream&) override { std::ranges::fill(span, value); }
  std::unique_ptr<Stream> make_stream() override { return std::make_unique<OnCpuStream>(info_); }
  void evict_from_caches(std::span<const ConstSpan>, Stream&) override {}  // nothing is timed here
  const LayerOps& ops() const override { return ops_; }

  std::int64_t count_not_finite(DType dtype, ConstSpan elements, Stream& stream) override {
    return cuda::count_not_finite(*this, dtype, elements, stream);
  }
  void gather(DType dtype, const std::byte* elements, std::span<const std::int64_t> places, Span to,
              Stream& stream) override {
    cuda::gather(*this, dtype, elements, places, to, stream);
  }

  void start_kernel_log() override {
    throw EnvironmentError("kernels executed on the CPU leave no records");
  }
  std::vector<KernelRun> finish_kernel_log() override { return {}; }
  // They measure no speed: tests see that they run.
  std::vector<CeilingLoop> ceiling_loops(int) override {
    return cuda::ceiling_loops(*this,
                               {.cached_bytes = 1 << 15, .uncached_bytes = 1 << 17, .rounds = 1});
  }

 private:
  const DeviceInfo info_;
  cuda::CudaLayerOps ops_{info_};
};

}  // namespace

std::string cuda_obstacle() { return {}; }
int cuda_device_count() { return 1; }
std::map<std::string, std::string> missing_cuda_libraries() { return {}; }

std::unique_ptr<Device> make_cuda_device(int index) {
  if (index != 0) throw InputError("cuda has one device when executed on the CPU: cuda:0");
  return on_cpu::make_card(on_cpu::default_card());
}

namespace on_cpu {

DeviceInfo default_card() {
  DeviceInfo info;
  info.kind = DeviceKind::cuda;
  info.name = "CUDA kernels executed on the CPU";
  info.isa = "sm_90";
  info.threads = 2;  // multiprocessors
  info.l1_bytes = 227 << 10;
  info.block_shared_bytes = 227 << 10;
  info.l2_bytes = 50 << 20;
  info.memory_bytes = std::int64_t(1) << 30;
  info.peak_f32_flops = 67e12;
  info.peak_f64_flops = 34e12;
  info.peak_bandwidth = 4.8e12;
  info.libraries = {{"cuda", "executed on the CPU"}, {"driver", "none"}};
  return info;
}

std::unique_ptr<Device> make_card(const DeviceInfo& info) {
  return std::make_unique<OnCpuDevice>(info);
}

bool has_shared_memory(const Stream& stream, std::size_t bytes) {
  return std::int64_t(bytes) <= static_cast<const OnCpuStream&>(stream).block_shared_bytes;
}

}  // namespace on_cpu

namespace cuda {

cudaStream_t native_stream(Stream&) { return nullptr; }

void check(cudaError_t error, const char* call, const char* file, int line) {
  if (error != cudaSuccess) throw_failed(error, "refused on the CPU", call, file, line);
}

}  // namespace cuda
}  // namespace convlab
