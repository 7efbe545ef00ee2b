#include <malloc.h>

#include "autotune/worker.h"
#include "bench/options.h"
#include "bench/output.h"
#include "bench/verbs.h"
#include "kernels_cpu/openblas.h"

int main(int argc, char** argv) {
  convlab::settle_descriptors_and_signals();
  convlab::restart_with_suitable_openblas(argv);
  if (const auto code =
          convlab::worker_main(argc, argv, convlab::append_all_algos, convlab::make_device))
    return *code;
  // What is freed goes back to the system, so that resident memory is what is in use: left alone,
  // glibc comes to keep blocks of up to 32 MB.
  mallopt(M_MMAP_THRESHOLD, 1 << 19);
  return convlab::run_program(argc, argv);
}
