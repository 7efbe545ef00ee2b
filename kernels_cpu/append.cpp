#include "kernels_cpu/algos.h"
#include "kernels_cpu/cpu.h"

namespace convlab {

void append_cpu_algos([[maybe_unused]] AlgoRegistry& registry) {
  registry.append(cpu::make_implicit_gemm());
#if CONVLAB_HAVE_ONEDNN
  cpu::append_onednn(registry);
#endif
}

}  // namespace convlab
