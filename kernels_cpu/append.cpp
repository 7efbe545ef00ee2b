#include "kernels_cpu/algos.h"
#include "kernels_cpu/cpu.h"

namespace convlab {

void append_cpu_algos(AlgoRegistry& registry) {
  registry.append(cpu::make_direct());
  registry.append(cpu::make_direct_first_layer());
  registry.append(cpu::make_direct_depthwise());
  registry.append(cpu::make_direct_grouped());
  registry.append(cpu::make_direct_plain());
  registry.append(cpu::make_im2col());
  registry.append(cpu::make_im2col_blocked());
  registry.append(cpu::make_implicit_gemm());
  registry.append(cpu::make_strassen());
  registry.append(cpu::make_fft());
  registry.append(cpu::make_fft_tiled());
  registry.append(cpu::make_fft_tiled_depthwise());
  registry.append(cpu::make_winograd());
  registry.append(cpu::make_winograd_1d());
#if CONVLAB_HAVE_ONEDNN
  cpu::append_onednn(registry);
#endif
}

void append_cpu_recurrent_algos(RecurrentRegistry& registry) {
  registry.append(cpu::make_recurrent_stepwise());
  registry.append(cpu::make_recurrent_batched_input());
  registry.append(cpu::make_recurrent_persistent());
#if CONVLAB_HAVE_ONEDNN
  cpu::append_onednn(registry);
#endif
}

}  // namespace convlab
