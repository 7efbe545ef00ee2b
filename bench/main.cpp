#include "autotune/worker.h"
#include "bench/options.h"
#include "bench/verbs.h"
#include "kernels_cpu/openblas.h"

int main(int argc, char** argv) {
  convlab::restart_with_suitable_openblas(argv);
  if (const auto code =
          convlab::worker_main(argc, argv, convlab::append_all_algos, convlab::make_device))
    return *code;
  return convlab::run_program(argc, argv);
}
