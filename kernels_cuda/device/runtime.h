// The CUDA runtime's part of the backend, on a card and on the CPU.
#pragma once

#include <driver_types.h>

#include <string>
#include <string_view>

#include "conv/device.h"
#include "conv/error.h"
#include "conv/phases.h"

namespace convlab::cuda {

// A failed call of the runtime or of a library: the call, its message, file and line.
class CudaError : public Error {
 public:
  using Error::Error;
};

// Throws OutOfMemory, DeviceLost or CudaError, unless the call succeeded. The runtime's error state
// is clear afterwards, as far as it can be.
void check(cudaError_t, const char* call, const char* file = __builtin_FILE(),
           int line = __builtin_LINE());

// The CUDA stream behind a Stream of this backend, whose device becomes the calling thread's.
cudaStream_t native_stream(Stream&);

// Queues one phase of a plan's run: `work` queues on the stream. With a recorder the phases wait
// for each other and are timed on the device; without one this costs nothing.
template <class Work>
void run_phase(PhaseRecorder* recorder, int phase, Stream& stream, Work&& work) {
  if (recorder)
    recorder->add(phase, stream.time(work, 1));
  else
    work();
}

// --- needs no card, and is tested without one

// The context is lost: CUDA says "the process must be terminated and relaunched", or the card's
// memory is broken.
bool is_sticky(cudaError_t);

// Throws what `check` promises for a failed call; `said` is the error's text.
[[noreturn]] void throw_failed(cudaError_t, std::string_view said, std::string_view call,
                               std::string_view file, int line);

// cuda_obstacle() from what cudaGetDeviceCount and cudaDriverGetVersion gave: versions as the
// runtime counts them (13010 is 13.1), 0 without a driver.
std::string obstacle_text(cudaError_t, std::string_view said, int cards, int driver_version,
                          int runtime_version);

// Why this backend cannot use a card: its architecture is older than sm_80, or the build has no
// kernels for it. `image` is what asking for a kernel gave, `built_for` CMAKE_CUDA_ARCHITECTURES.
// Empty if it can.
std::string card_obstacle(std::string_view name, int major, int minor, cudaError_t image,
                          std::string_view built_for);

// Throws InputError if there are fewer cards.
void require_card(int index, int cards);

// 13010 -> "13.1"
std::string version_text(int runtime_version);

// A library's version with NVIDIA_TF32_OVERRIDE, which decides about TF32 in place of its caller:
// results under it are other results.
std::string with_tf32_override(const std::string& version);

}  // namespace convlab::cuda
