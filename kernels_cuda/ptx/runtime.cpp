// The part of CUDA's runtime that compiled kernels call, in place of libcudart: launches go to the
// interpreter. So what runs is all that nvcc made, the host's side of a launch included.
#include "kernels_cuda/ptx/runtime.h"

#include <cuda_runtime_api.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "conv/error.h"
#include "kernels_cuda/on_cpu/allocations.h"
#include "kernels_cuda/on_cpu/schedule.h"
#include "kernels_cuda/ptx/block.h"
#include "kernels_cuda/ptx/program.h"

namespace convlab::ptx {
namespace {

constexpr std::size_t shared_by_default = 48 << 10, most_shared = 227 << 10;

struct Kernel {
  std::string name;
  std::size_t most_dynamic_shared = shared_by_default;
};

// By the address of the function that stands for it on the host. Filled before main().
std::map<const void*, Kernel>& kernels() {
  static std::map<const void*, Kernel> all;
  return all;
}

Library& library() {
  static Library all = [] {
    const char* const path = std::getenv("CONVLAB_PTX");
    return Library::from_file(path ? path : CONVLAB_PTX);
  }();
  return all;
}

// A line for each kernel in the file that CONVLAB_PTX_LAUNCHED names: tests see that all of them
// run.
void note_launch(const std::string& kernel) {
  static const char* const path = std::getenv("CONVLAB_PTX_LAUNCHED");
  static std::set<std::string> noted;
  if (path && noted.insert(kernel).second) std::ofstream(path, std::ios::app) << kernel + '\n';
}

// What the card's driver would refuse.
cudaError_t refusal(const Launch& launch, const Kernel& kernel, const Program& program) {
  const dim3 grid = launch.grid, block = launch.block;
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.x > 0x7fffffff || grid.y > 65535 ||
      grid.z > 65535)
    return cudaErrorInvalidConfiguration;
  if (block.x == 0 || block.y == 0 || block.z == 0 || block.x > 1024 || block.y > 1024 ||
      block.z > 64 || launch.threads() > program.most_threads)
    return cudaErrorInvalidConfiguration;
  std::size_t shared = launch.shared_bytes;
  for (const Program::Range& range : program.shared) shared += range.bytes;
  if (launch.shared_bytes > kernel.most_dynamic_shared || shared > most_shared)
    return cudaErrorInvalidValue;
  return cudaSuccess;
}

cudaError_t launch(const cudaLaunchConfig_t& config, const void* function, void** arguments,
                   bool together) {
  const auto found = kernels().find(function);
  if (found == kernels().end()) return cudaErrorInvalidDeviceFunction;
  static std::mutex one_launch;
  const std::lock_guard lock(one_launch);
  const Program& program = library().program(found->second.name);
  std::vector<std::byte> parameters(program.parameter_bytes());
  for (std::size_t i = 0; i < program.parameters.size(); ++i)
    std::memcpy(parameters.data() + program.parameters[i].begin, arguments[i],
                program.parameters[i].bytes);
  const std::vector<on_cpu::Allocation> allocations = on_cpu::allocations();
  const Launch launch{.grid = config.gridDim,
                      .block = config.blockDim,
                      .shared_bytes = config.dynamicSmemBytes,
                      .parameters = parameters,
                      .allocations = allocations,
                      .seed = on_cpu::config.seed,
                      .together = together};
  if (const cudaError_t error = refusal(launch, found->second, program)) return error;
  note_launch(found->second.name);
  execute(program, launch);
  return cudaSuccess;
}

[[noreturn]] void not_called(const char* function) {
  throw Error(std::string(function) + ": kernels are launched by launch() only");
}

}  // namespace

void replace_library(Library other) { library() = std::move(other); }

}  // namespace convlab::ptx

using convlab::ptx::kernels;
using convlab::ptx::not_called;

// Registration of compiled kernels, as nvcc's code calls it (crt/host_runtime.h).
extern "C" {

void** __cudaRegisterFatBinary(void*) {
  static void* none = nullptr;
  return &none;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}

void __cudaRegisterFunction(void**, const char* function, char*, const char* name, int, uint3*,
                            uint3*, dim3*, dim3*, int*) {
  kernels()[function] = {.name = name};
}

// For kernel<<<...>>>(), which nothing uses.
unsigned __cudaPopCallConfiguration(dim3*, dim3*, std::size_t*, void*) {
  not_called("__cudaPopCallConfiguration");
}
cudaError_t __cudaGetKernel(cudaKernel_t*, const void*) { not_called("__cudaGetKernel"); }
cudaError_t __cudaLaunchKernel(cudaKernel_t, dim3, dim3, void**, std::size_t, cudaStream_t) {
  not_called("__cudaLaunchKernel");
}

cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute, int value) {
  const auto kernel = kernels().find(function);
  if (kernel == kernels().end()) return cudaErrorInvalidDeviceFunction;
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 ||
      std::size_t(value) > convlab::ptx::most_shared)
    return cudaErrorInvalidValue;
  kernel->second.most_dynamic_shared = std::size_t(value);
  return cudaSuccess;
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* function,
                                void** arguments) {
  return convlab::ptx::launch(*config, function, arguments, false);
}

// There is no card that could be too small for all blocks.
cudaError_t cudaLaunchCooperativeKernel(const void* function, dim3 grid, dim3 block,
                                        void** arguments, std::size_t shared_bytes, cudaStream_t) {
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  return convlab::ptx::launch(config, function, arguments, true);
}

}  // extern "C"
