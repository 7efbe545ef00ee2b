// Which OpenBLAS is loaded, and whether its kernels suit this CPU.
//
// OpenBLAS picks its kernels by CPU model when it is loaded, before main, and an older one does not
// know a newer CPU: 0.3.21 takes a Zen 5 for a Haswell and loses half its speed. The environment
// variable OPENBLAS_CORETYPE overrides its choice, also only when it is loaded.
#pragma once

#include <cstddef>
#include <string>

namespace convlab {

// The size of one of its buffers on x86-64, with some room.
inline constexpr std::size_t openblas_buffer_bytes = (std::size_t{128} << 20) + (64 << 10);

struct OpenBlasInfo {
  std::string version;         // "0.3.21"
  std::string core;            // kernels in use: "SkylakeX", "Haswell", ...
  bool openmp = false;         // the OpenMP build, whose threads are ours
  std::string advisable_core;  // OPENBLAS_CORETYPE that would suit the CPU better; empty: none

  std::string text() const;  // "0.3.21 SkylakeX openmp"; what DeviceInfo::libraries holds
};
OpenBlasInfo openblas_info();

// The core whose kernels use `isa`, the best that the CPU has ("baseline", "avx2", "avx512"), or
// "" when those of `core` already do.
std::string advisable_openblas_core(const std::string& core, const std::string& isa);

// The OPENBLAS_CORETYPE to start again with, or "" to go on. Goes on when the user has set the
// variable, and when this is already the second start.
std::string openblas_core_to_restart_with(const OpenBlasInfo&, bool coretype_is_set,
                                          bool restarted);

// Under a memory limit (ulimit -v), makes OpenBLAS allocate the buffers of so many threads now.
// Throws EnvironmentError if they do not fit. Later, OpenBLAS would retry for ever.
void reserve_openblas_memory(int threads);

// Call first in main: replaces the process by itself with OPENBLAS_CORETYPE set if that is
// advisable. Returns otherwise, and also if the new start fails.
void restart_with_suitable_openblas(char** argv);

}  // namespace convlab
