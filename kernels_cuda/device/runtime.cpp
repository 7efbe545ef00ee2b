#include "kernels_cuda/device/runtime.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>

namespace convlab::cuda {

bool is_sticky(cudaError_t error) {
  static constexpr std::array lost{cudaErrorECCUncorrectable,
                                   cudaErrorNvlinkUncorrectable,
                                   cudaErrorIllegalAddress,
                                   cudaErrorLaunchTimeout,
                                   cudaErrorAssert,
                                   cudaErrorHardwareStackError,
                                   cudaErrorIllegalInstruction,
                                   cudaErrorMisalignedAddress,
                                   cudaErrorInvalidAddressSpace,
                                   cudaErrorInvalidPc,
                                   cudaErrorLaunchFailure,
                                   cudaErrorMpsClientTerminated};
  return std::find(lost.begin(), lost.end(), error) != lost.end();
}

void throw_failed(cudaError_t error, std::string_view said, std::string_view call,
                  std::string_view file, int line) {
  const std::string what =
      fmt::format("{}: {} (error {}) at {}:{}", call, said, int(error), file, line);
  if (error == cudaErrorMemoryAllocation) throw OutOfMemory(what);
  if (is_sticky(error)) throw DeviceLost(what);
  if (error == cudaErrorDevicesUnavailable)
    throw EnvironmentError(
        what +
        "; if another process uses the card in exclusive mode (a worker counts as "
        "one), allow several: nvidia-smi -c DEFAULT");
  if (error == cudaErrorNoKernelImageForDevice)
    throw EnvironmentError(
        what + "; configure with CMAKE_CUDA_ARCHITECTURES=native to build for this card");
  throw CudaError(what);
}

std::string card_obstacle(std::string_view name, int major, int minor, cudaError_t image,
                          std::string_view built_for) {
  constexpr int oldest = 8;  // Ampere: cp.async, bf16, TF32
  if (major < oldest)
    return fmt::format("{} is sm_{}{}: the kernels need sm_{}0 or newer", name, major, minor,
                       oldest);
  if (image == cudaErrorNoKernelImageForDevice || image == cudaErrorInvalidDeviceFunction)
    return fmt::format(
        "{} is sm_{}{}, and this build has kernels for {}: configure with "
        "CMAKE_CUDA_ARCHITECTURES=native",
        name, major, minor, built_for);
  return {};
}

void require_card(int index, int cards) {
  if (index < 0 || index >= cards)
    throw InputError(
        cards == 1 ? fmt::format("cuda:{} does not exist: there is one card, cuda:0", index)
                   : fmt::format("cuda:{} does not exist: there are {} cards, cuda:0 to cuda:{}",
                                 index, cards, cards - 1));
}

std::string with_tf32_override(const std::string& version) {
  const char* const value = std::getenv("NVIDIA_TF32_OVERRIDE");
  return value ? fmt::format("{} with NVIDIA_TF32_OVERRIDE={}", version, value) : version;
}

std::string version_text(int runtime_version) {
  return fmt::format("{}.{}", runtime_version / 1000, runtime_version % 1000 / 10);
}

std::string obstacle_text(cudaError_t error, std::string_view said, int cards, int driver_version,
                          int runtime_version) {
  if (error == cudaSuccess && cards > 0) return {};
  if (driver_version == 0)
    return fmt::format(
        "no NVIDIA driver: install one for CUDA {} or newer (in a container, pass the host's "
        "through "
        "with --gpus all)",
        version_text(runtime_version));
  if (error == cudaErrorInsufficientDriver)
    return fmt::format(
        "the NVIDIA driver is for CUDA {}, this build for CUDA {}: update the driver, or build "
        "with "
        "an older toolkit",
        version_text(driver_version), version_text(runtime_version));
  if (error == cudaErrorNoDevice || (error == cudaSuccess && cards == 0)) {
    const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
    if (visible)
      return fmt::format("the NVIDIA driver shows no card: CUDA_VISIBLE_DEVICES is '{}'", visible);
    return "the NVIDIA driver finds no card: see what nvidia-smi says";
  }
  return fmt::format("the NVIDIA driver cannot be used: {} (error {}); see what nvidia-smi says",
                     said, int(error));
}

}  // namespace convlab::cuda
