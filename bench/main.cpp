#include <malloc.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "autotune/worker.h"
#include "bench/options/options.h"
#include "bench/output.h"
#include "bench/verbs/verbs.h"
#include "kernels_cpu/gemm/openblas.h"

namespace {

// OpenBLAS allocates a buffer for each thread when it is loaded, and retries for ever if a memory
// limit (ulimit -v) denies one. So this runs before any library's initialisation, in a process
// where little but system calls works yet.
__attribute__((no_sanitize("address", "thread", "undefined"))) void require_room_for_openblas(
    int, char**, char** environment) {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
  cpu_set_t affinity;
  CPU_ZERO(&affinity);
  long threads = sched_getaffinity(0, sizeof affinity, &affinity) == 0 ? CPU_COUNT(&affinity) : 1;
  for (const char* const name : {"OMP_NUM_THREADS=", "OPENBLAS_NUM_THREADS="})
    for (char** variable = environment; *variable != nullptr; ++variable)
      if (std::strncmp(*variable, name, std::strlen(name)) == 0)
        threads = std::strtol(*variable + std::strlen(name), nullptr, 10);
  constexpr std::size_t bytes = convlab::openblas_buffer_bytes, most = 128;
  void* taken[most];
  std::size_t count = 0;
  while (count < most && long(count) < threads) {
    void* const at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) {
      constexpr char message[] =
          "convlab: the memory limit leaves no room for OpenBLAS's buffers of 128 MiB a thread: "
          "raise ulimit -v, or set OPENBLAS_NUM_THREADS=1\n";
      if (write(STDERR_FILENO, message, sizeof message - 1) < 0) _exit(3);
      _exit(3);
    }
    taken[count++] = at;
  }
  while (count > 0) munmap(taken[--count], bytes);
}
[[gnu::section(".preinit_array"),
  gnu::used]] void (*const before_libraries)(int, char**, char**) = require_room_for_openblas;

}  // namespace

int main(int argc, char** argv) {
  convlab::settle_descriptors_and_signals();
  convlab::restart_with_suitable_openblas(argv);
  if (const auto code =
          convlab::worker_main(argc, argv, convlab::append_all_algos, convlab::make_device))
    return *code;
  // Returns freed memory to the system, so that resident memory is the memory in use. By default
  // glibc's threshold adapts and glibc keeps freed blocks of up to 32 MB.
  mallopt(M_MMAP_THRESHOLD, 1 << 19);
  return convlab::run_program(argc, argv);
}
