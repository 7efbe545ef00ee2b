#include "kernels_cuda/device/kernel_log.h"

#include <cuda_runtime_api.h>
#include <cxxabi.h>
#include <fmt/format.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <utility>

#include "conv/error.h"
#include "kernels_cuda/device/lazy_library.h"
#if __has_include(<cupti.h>)
#include <cupti.h>
#endif

namespace convlab::cuda {

#if __has_include(<cupti.h>)
namespace {

constinit LazyLibrary cupti_library(
    "CUPTI", "libcupti.so.", CUDART_VERSION / 1000, CONVLAB_LIBRARY_FOLDER,
    "it is part of the CUDA toolkit: add its folder to LD_LIBRARY_PATH");

CONVLAB_LAZY_FUNCTION(cupti_library, cuptiActivityDisable);
CONVLAB_LAZY_FUNCTION(cupti_library, cuptiActivityEnable);
CONVLAB_LAZY_FUNCTION(cupti_library, cuptiActivityFlushAll);
CONVLAB_LAZY_FUNCTION(cupti_library, cuptiActivityGetNextRecord);
CONVLAB_LAZY_FUNCTION(cupti_library, cuptiActivityRegisterCallbacks);
CONVLAB_LAZY_FUNCTION(cupti_library, cuptiGetResultString);

void check_cupti(CUptiResult result, const char* call) {
  if (result == CUPTI_SUCCESS) return;
  const char* said = "unknown";
  cuptiGetResultString(result, &said);
  throw EnvironmentError(
      fmt::format("CUPTI: {}: {}; other profilers must not run, and the driver "
                  "may keep counters to administrators",
                  call, said));
}

// CUPTI's callbacks take no user pointer.
struct Log {
  std::mutex mutex;
  std::vector<KernelRun> runs;
  std::string failed;
};
Log& kernel_log() {
  static Log log;
  return log;
}

constexpr std::size_t buffer_bytes = 1 << 20, buffer_alignment = 8;

void CUPTIAPI give_buffer(std::uint8_t** buffer, std::size_t* size, std::size_t* most_records) {
  *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(buffer_alignment, buffer_bytes));
  *size = *buffer == nullptr ? 0 : buffer_bytes;
  *most_records = 0;  // as many as fit
}

void CUPTIAPI take_buffer(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t,
                          std::size_t bytes) {
  Log& log = kernel_log();
  const std::lock_guard lock(log.mutex);
  try {
    for (KernelRun& run : kernel_runs(reinterpret_cast<std::byte*>(buffer), bytes))
      log.runs.push_back(std::move(run));
  } catch (const Error& error) {  // no exception may pass through CUPTI
    log.failed = error.what();
  }
  std::free(buffer);
}

std::string demangled(const char* name) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(
      abi::__cxa_demangle(name, nullptr, nullptr, &status), &std::free);
  return text ? text.get() : name;
}

}  // namespace

void start_kernel_log() {
  Log& log = kernel_log();
  log.runs.clear();
  log.failed.clear();
  check_cupti(cuptiActivityRegisterCallbacks(&give_buffer, &take_buffer),
              "cuptiActivityRegisterCallbacks");
  check_cupti(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL), "cuptiActivityEnable");
}

std::vector<KernelRun> finish_kernel_log() {
  check_cupti(cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED), "cuptiActivityFlushAll");
  check_cupti(cuptiActivityDisable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL), "cuptiActivityDisable");
  Log& log = kernel_log();
  const std::lock_guard lock(log.mutex);
  if (!log.failed.empty()) throw EnvironmentError(log.failed);
  return std::exchange(log.runs, {});
}

// Records grow at their ends only: the fields of CUDA 12.0 keep their places.
std::vector<KernelRun> kernel_runs(std::byte* records, std::size_t bytes) {
  std::vector<KernelRun> runs;
  CUpti_Activity* record = nullptr;
  CUptiResult result = CUPTI_SUCCESS;
  while ((result = cuptiActivityGetNextRecord(reinterpret_cast<std::uint8_t*>(records), bytes,
                                              &record)) == CUPTI_SUCCESS) {
    if (record->kind != CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) continue;
    const auto& kernel = *reinterpret_cast<const CUpti_ActivityKernel9*>(record);
    if (kernel.end < kernel.start || kernel.name == nullptr) continue;  // nothing was recorded
    runs.push_back({demangled(kernel.name), double(kernel.end - kernel.start) * 1e-6});
  }
  if (result != CUPTI_ERROR_MAX_LIMIT_REACHED) check_cupti(result, "cuptiActivityGetNextRecord");
  return runs;
}

#else

namespace {
[[noreturn]] void refuse() {
  throw EnvironmentError("CUPTI: not in the toolkit that this was built with");
}
}  // namespace

void start_kernel_log() { refuse(); }
std::vector<KernelRun> finish_kernel_log() { refuse(); }
std::vector<KernelRun> kernel_runs(std::byte*, std::size_t) { refuse(); }

#endif

}  // namespace convlab::cuda
