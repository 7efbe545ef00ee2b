// A device whose kernels are executed on the CPU, in place of a card: the same registry, plans and
// checks run on it.
#include "kernels_cuda/on_cpu/device.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "conv/config.h"
#include "conv/error.h"
#include "kernels_cuda/cuda.h"
#include "kernels_cuda/device/ceilings.h"
#include "kernels_cuda/device/nvtx.h"
#include "kernels_cuda/device/runtime.h"
#include "kernels_cuda/device/scan.h"
#include "kernels_cuda/layers/layer_ops.h"
#include "kernels_cuda/on_cpu/allocations.h"
#include "kernels_cuda/on_cpu/card.h"

namespace convlab {
namespace {

class OnCpuStream : public Stream {
 public:
  explicit OnCpuStream(const DeviceInfo& device) : card(device) {}
  void synchronize() override {}
  const DeviceInfo card;
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

// $CONVLAB_CARD describes another card, so that programs are tried on it:
// "sm=86,multiprocessors=46,block_shared=101376,cufft=0,cards=2". A library that is 0 is missing.
// Values that it leaves out are the default card's.
Config other_card() {
  const char* const text = std::getenv("CONVLAB_CARD");
  if (text == nullptr) return {};
  const auto is_known = [](const auto& entry) {
    const auto& [name, value] = entry;
    const auto* const number = std::get_if<std::int64_t>(&value);
    const auto between = [&](std::int64_t least, std::int64_t most) {
      return number && *number >= least && *number <= most;
    };
    return name == "sm"                ? between(10, 999)
           : name == "multiprocessors" ? between(1, 1000)
           : name == "cards"           ? between(1, 16)
           : name == "block_shared"
               ? between(1 << 10, 1 << 20)
               : between(0, 1) && (name == "cublas" || name == "cudnn" || name == "cufft");
  };
  try {
    Config card = Config::parse(text);
    if (std::ranges::all_of(card.values(), is_known)) return card;
  } catch (const InputError&) {  // it speaks of an algorithm's config
  }
  throw InputError(
      fmt::format("CONVLAB_CARD: '{}': expected some of sm=10 to 999, multiprocessors=1 to 1000, "
                  "block_shared=1024 to 1048576, cards=1 to 16, cublas=0, cudnn=0, cufft=0, with "
                  "commas between",
                  text));
}

}  // namespace

std::string cuda_obstacle() { return {}; }
int cuda_device_count() {
  const Config card = other_card();
  return card.has("cards") ? int(card.get("cards")) : 1;
}

std::map<std::string, std::string> missing_cuda_libraries() {
  static const std::map<std::string, std::string> missing = [] {
    std::map<std::string, std::string> found;
    for (const char* const library : {"cublas", "cudnn", "cufft"})
      if (const Config card = other_card(); card.has(library) && card.get(library) == 0)
        found[library] = fmt::format("{}: CONVLAB_CARD says that it is missing", library);
    return found;
  }();
  return missing;
}

std::unique_ptr<Device> make_cuda_device(int index) {
  cuda::require_card(index, cuda_device_count());
  DeviceInfo info = on_cpu::default_card();
  info.index = index;
  const int sm = std::stoi(info.isa.substr(3));
  if (const std::string obstacle =
          cuda::card_obstacle(info.name, sm / 10, sm % 10, cudaSuccess, {});
      !obstacle.empty())
    throw EnvironmentError(fmt::format("cuda:{}: {}", index, obstacle));
  return on_cpu::make_card(info);
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
  const Config other = other_card();
  if (other.has("sm")) info.isa = fmt::format("sm_{}", other.get("sm"));
  if (other.has("multiprocessors")) info.threads = int(other.get("multiprocessors"));
  if (other.has("block_shared")) {
    info.block_shared_bytes = other.get("block_shared");
    info.l1_bytes = info.block_shared_bytes + 1024;
  }
  return info;
}

std::unique_ptr<Device> make_card(const DeviceInfo& info) {
  return std::make_unique<OnCpuDevice>(info);
}

const DeviceInfo& card_of(const Stream& stream) {
  return static_cast<const OnCpuStream&>(stream).card;
}

bool has_shared_memory(const Stream& stream, std::size_t bytes) {
  return std::int64_t(bytes) <= card_of(stream).block_shared_bytes;
}

void require_library(const std::string& name) {
  const auto missing = missing_cuda_libraries();
  if (const auto found = missing.find(name); found != missing.end())
    throw EnvironmentError(found->second);
}

}  // namespace on_cpu

namespace cuda {

cudaStream_t native_stream(Stream&) { return nullptr; }

void check(cudaError_t error, const char* call, const char* file, int line) {
  if (error != cudaSuccess) throw_failed(error, "refused on the CPU", call, file, line);
}

}  // namespace cuda
}  // namespace convlab
