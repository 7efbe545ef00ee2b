// The card: facts, memory and streams through the CUDA runtime.
#include "kernels_cuda/device/cuda_device.h"

#include <cuda_runtime.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <limits>

#include "conv/error.h"
#include "kernels_cuda/cuda.h"
#include "kernels_cuda/device/ceilings.h"
#include "kernels_cuda/device/kernel_log.h"
#include "kernels_cuda/device/nvtx.h"
#include "kernels_cuda/device/scan.h"
#include "kernels_cuda/fft/cufft_calls.h"
#include "kernels_cuda/gemm/cublas_calls.h"
#include "kernels_cuda/layers/layer_ops.h"
#include "kernels_cuda/nccl/nccl.h"
#if CONVLAB_HAVE_CUDNN
#include "kernels_cuda/cudnn/calls.h"
#include "kernels_cuda/cudnn/rules.h"
#endif

namespace convlab {
namespace cuda {

// A kernel of ceilings.cu: on the host its function stands for it.
void write_global(uint4* data, std::int64_t tiles, int rounds, unsigned word);

namespace {

// "13.0 (580.65.06)": the driver's CUDA version, and its own if the kernel module gives it.
std::string driver_text() {
  int version = 0;
  check(cudaDriverGetVersion(&version), "cudaDriverGetVersion");
  std::ifstream file("/proc/driver/nvidia/version");
  for (std::string word; file >> word;)
    if (word.find_first_not_of("0123456789.") == std::string::npos && word.find('.') != word.npos)
      return fmt::format("{} ({})", version_text(version), word);
  return version_text(version);
}

// "13.1.0" from a library's cublasGetProperty or cufftGetProperty, which need no card.
template <class Function>
std::string library_version(const LazyFunction<Function>& get_property) {
  int part[3] = {};
  for (int i = 0; i < 3; ++i) get_property(libraryPropertyType(MAJOR_VERSION + i), &part[i]);
  return fmt::format("{}.{}.{}", part[0], part[1], part[2]);
}

// Multiply-adds a clock of one multiprocessor by compute capability: CUDA C++ Programming Guide,
// arithmetic instructions. The memory moves data at both edges of its clock.
void set_peaks(const cudaDeviceProp& properties, int device, DeviceInfo& info) {
  const int capability = 10 * properties.major + properties.minor;
  const double f32_lanes = capability <= 80 ? 64 : 128;
  const double f64_lanes = capability == 80 ? 32 : capability == 90 || capability == 100 ? 64 : 2;
  const auto attribute = [&](cudaDeviceAttr which) {
    int value = 0;
    check(cudaDeviceGetAttribute(&value, which, device), "cudaDeviceGetAttribute");
    return double(value);
  };
  const double per_lane = 2 * 1e3 * attribute(cudaDevAttrClockRate) * info.threads;
  info.peak_f32_flops = per_lane * f32_lanes;
  info.peak_f64_flops = per_lane * f64_lanes;
  info.peak_bandwidth = 2 * 1e3 * attribute(cudaDevAttrMemoryClockRate) *
                        attribute(cudaDevAttrGlobalMemoryBusWidth) / 8;
}

// Images of kernels are for the architecture of their PTX. A newer one is the driver's work.
struct KernelImage {
  cudaError_t error = cudaSuccess;  // cudaErrorNoKernelImageForDevice: the build has none
  bool by_driver = false;
};
KernelImage image_for_current_device() {
  cudaFuncAttributes attributes{};
  const cudaError_t error =
      cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(&write_global));
  cudaGetLastError();
  return {error, attributes.binaryVersion > attributes.ptxVersion};
}

DeviceInfo describe(int device) {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  check(cudaSetDevice(device), "cudaSetDevice");
  const KernelImage image = image_for_current_device();
  if (const std::string obstacle =
          card_obstacle(properties.name, properties.major, properties.minor, image.error,
                        CONVLAB_CUDA_ARCHITECTURES);
      !obstacle.empty())
    throw EnvironmentError(fmt::format("cuda:{}: {}", device, obstacle));
  check(image.error, "cudaFuncGetAttributes");
  int runtime = 0;
  check(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
  DeviceInfo info;
  info.kind = DeviceKind::cuda;
  info.index = device;
  char bus_id[32] = "";
  check(cudaDeviceGetPCIBusId(bus_id, sizeof bus_id, device), "cudaDeviceGetPCIBusId");
  info.bus_id = bus_id;
  info.name = properties.name;
  info.isa = fmt::format("sm_{}{}", properties.major, properties.minor);
  info.threads = properties.multiProcessorCount;
  info.l1_bytes = std::int64_t(properties.sharedMemPerMultiprocessor);
  info.block_shared_bytes = std::int64_t(properties.sharedMemPerBlockOptin);
  info.compiles_kernels = image.by_driver;
  info.l2_bytes = properties.l2CacheSize;
  info.memory_bytes = std::int64_t(properties.totalGlobalMem);
  set_peaks(properties, device, info);
  info.libraries["driver"] = driver_text();
  info.libraries["cuda"] = version_text(runtime);
  const auto missing = missing_cuda_libraries();
  if (!missing.contains("cublas"))
    info.libraries["cublas"] = with_tf32_override(library_version(cublasGetProperty));
  if (!missing.contains("cufft")) info.libraries["cufft"] = library_version(cufftGetProperty);
#if CONVLAB_HAVE_CUDNN
  if (!missing.contains("cudnn"))
    info.libraries["cudnn"] = with_tf32_override(cudnn_version_text(cudnnGetVersion()));
#endif
  return info;
}

class CudaDevice : public Device,
                   public NvtxRanges,
                   public CeilingDevice,
                   public ScanningDevice,
                   public AveragingDevice {
 public:
  explicit CudaDevice(int index) : index_(index), info_(describe(index)) {
    if (has_memory_pools(index)) keep_freed_memory();
  }

  const DeviceInfo& info() const noexcept override { return info_; }

  Buffer allocate(std::size_t bytes) override { return allocate_on(index_, bytes); }
  Buffer allocate_pinned(std::size_t bytes) override {
    check(cudaSetDevice(index_), "cudaSetDevice");
    void* data = nullptr;
    check(cudaMallocHost(&data, std::max<std::size_t>(bytes, 1)), "cudaMallocHost");
    return Buffer(static_cast<std::byte*>(data), bytes, [](std::byte* p) { cudaFreeHost(p); });
  }
  // From the host, or from elsewhere on the card.
  void copy_to_device(std::byte* to, ConstSpan from, Stream& stream) override {
    check(cudaMemcpyAsync(to, from.data(), from.size(), cudaMemcpyDefault, native_stream(stream)),
          "cudaMemcpyAsync");
  }
  void copy_to_host(Span to, const std::byte* from, Stream& stream) override {
    check(
        cudaMemcpyAsync(to.data(), from, to.size(), cudaMemcpyDeviceToHost, native_stream(stream)),
        "cudaMemcpyAsync");
    stream.synchronize();
  }
  void fill(Span span, std::byte value, Stream& stream) override {
    if (span.empty()) return;
    check(cudaMemsetAsync(span.data(), int(value), span.size(), native_stream(stream)),
          "cudaMemsetAsync");
  }
  std::unique_ptr<Stream> make_stream() override { return std::make_unique<CudaStream>(index_); }
  // Filling twice the cache's size elsewhere evicts the rest.
  void evict_from_caches(std::span<const ConstSpan>, Stream& stream) override {
    if (sweep_.bytes() == 0) sweep_ = allocate(2 * std::size_t(info_.l2_bytes));
    check(cudaMemsetAsync(sweep_.data(), 0, sweep_.bytes(), native_stream(stream)),
          "cudaMemsetAsync");
  }
  const LayerOps& ops() const override { return ops_; }

  std::int64_t count_not_finite(DType dtype, ConstSpan elements, Stream& stream) override {
    return cuda::count_not_finite(*this, dtype, elements, stream);
  }
  void gather(DType dtype, const std::byte* elements, std::span<const std::int64_t> places, Span to,
              Stream& stream) override {
    cuda::gather(*this, dtype, elements, places, to, stream);
  }

  std::string averaging_library() override { return nccl_version(); }
  std::string make_group_id() override { return make_nccl_id(); }
  std::unique_ptr<DeviceGroup> join_group(const std::string& id, int rank, int size) override {
    return join_nccl(index_, id, rank, size);
  }

  void start_kernel_log() override { cuda::start_kernel_log(); }
  std::vector<KernelRun> finish_kernel_log() override {
    check(cudaSetDevice(index_), "cudaSetDevice");
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    return cuda::finish_kernel_log();
  }

  // One size is a quarter of L2, which leaves room for other data; the other is so large that L2
  // keeps little of it from one run to the next.
  std::vector<CeilingLoop> ceiling_loops(int) override {
    const std::int64_t uncached = std::max<std::int64_t>(16 * info_.l2_bytes, 512 << 20);
    return cuda::ceiling_loops(
        *this, {.cached_bytes = info_.l2_bytes / 4, .uncached_bytes = uncached, .rounds = 1024});
  }

  int index() const { return index_; }

 private:
  // The pool keeps up to a quarter of the card's memory, so that buffers are reused without the
  // driver, and the libraries' own allocations still find room.
  void keep_freed_memory() const {
    cudaMemPool_t pool = nullptr;
    check(cudaDeviceGetDefaultMemPool(&pool, index_), "cudaDeviceGetDefaultMemPool");
    std::uint64_t kept = std::uint64_t(info_.memory_bytes) / 4;
    check(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &kept),
          "cudaMemPoolSetAttribute");
  }

  int index_;
  DeviceInfo info_;
  CudaLayerOps ops_{info_};
  Buffer sweep_;
};

}  // namespace

int device_index(const Device& device) { return static_cast<const CudaDevice&>(device).index(); }

bool has_memory_pools(int device) {
  int value = 0;
  check(cudaDeviceGetAttribute(&value, cudaDevAttrMemoryPoolsSupported, device),
        "cudaDeviceGetAttribute");
  return value != 0;
}

Buffer allocate_on(int device, std::size_t bytes) {
  return allocate_on(device, bytes, has_memory_pools(device));
}

// On the legacy stream: a buffer is ready when this returns, and is freed when all work on the
// device, on any stream, is done.
Buffer allocate_on(int device, std::size_t bytes, bool from_pool) {
  check(cudaSetDevice(device), "cudaSetDevice");
  void* data = nullptr;
  const std::size_t at_least_one = std::max<std::size_t>(bytes, 1);
  cudaError_t error =
      from_pool ? cudaMallocAsync(&data, at_least_one, nullptr) : cudaMalloc(&data, at_least_one);
  if (error == cudaErrorMemoryAllocation && from_pool) {  // the pool's memory may be fragmented
    cudaGetLastError();
    cudaMemPool_t pool = nullptr;
    check(cudaDeviceGetDefaultMemPool(&pool, device), "cudaDeviceGetDefaultMemPool");
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    check(cudaMemPoolTrimTo(pool, 0), "cudaMemPoolTrimTo");
    error = cudaMallocAsync(&data, at_least_one, nullptr);
  }
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    std::size_t free = 0, total = 0;
    check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    throw OutOfMemory(
        fmt::format("cannot allocate {} bytes: {} of the card's {} are free", bytes, free, total));
  }
  check(error, from_pool ? "cudaMallocAsync" : "cudaMalloc");
  check(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
  return Buffer(static_cast<std::byte*>(data), bytes, [device, from_pool](std::byte* p) {
    cudaSetDevice(device);
    cudaDeviceSynchronize();
    from_pool ? cudaFreeAsync(p, nullptr) : cudaFree(p);
  });
}

void check(cudaError_t error, const char* call, const char* file, int line) {
  if (error == cudaSuccess) return;
  cudaGetLastError();
  throw_failed(error, cudaGetErrorString(error), call, file, line);
}

void throw_library_failed(bool out_of_memory, const std::string& said, const char* call,
                          const char* file, int line) {
  const cudaError_t error = cudaGetLastError();
  if (is_sticky(error)) throw_failed(error, cudaGetErrorString(error), call, file, line);
  const std::string what = fmt::format("{}: {} at {}:{}", call, said, file, line);
  if (out_of_memory) throw OutOfMemory(what);
  throw CudaError(what);
}

}  // namespace cuda

std::string cuda_obstacle() {
  int cards = 0, driver = 0, runtime = 0;
  const cudaError_t error = cudaGetDeviceCount(&cards);
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  cudaGetLastError();
  return cuda::obstacle_text(error, cudaGetErrorString(error), cards, driver, runtime);
}

std::map<std::string, std::string> missing_cuda_libraries() {
  std::map<std::string, std::string> obstacles{{"cublas", cuda::cublas_library.obstacle()},
                                               {"cufft", cuda::cufft_library.obstacle()}};
#if CONVLAB_HAVE_CUDNN
  obstacles["cudnn"] = cuda::cudnn_obstacle();
#endif
  std::erase_if(obstacles, [](const auto& entry) { return entry.second.empty(); });
  return obstacles;
}

int cuda_device_count() {
  int cards = 0;
  const cudaError_t error = cudaGetDeviceCount(&cards);
  cudaGetLastError();
  return error == cudaSuccess ? cards : 0;
}

std::unique_ptr<Device> make_cuda_device(int index) {
  if (const std::string obstacle = cuda_obstacle(); !obstacle.empty())
    throw EnvironmentError(obstacle);
  cuda::require_card(index, cuda_device_count());
  return std::make_unique<cuda::CudaDevice>(index);
}

}  // namespace convlab
