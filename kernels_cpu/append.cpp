#include "kernels_cpu/algos.h"
#include "kernels_cpu/cpu.h"
#include "kernels_cpu/half/through_f32.h"
#include "kernels_cpu/slices/slices.h"

namespace convlab {

void append_cpu_algos(AlgoRegistry& registry) {
  using cpu::Views;
  const auto append = [&](std::unique_ptr<ConvAlgo> algo, Views views) {
    registry.append(
        std::make_unique<cpu::ThroughF32>(std::make_unique<cpu::BySlices>(std::move(algo), views)));
  };
  append(cpu::make_direct(), Views::all);
  append(cpu::make_direct_first_layer(), Views::all);
  append(cpu::make_direct_grouped(), Views::all);
  append(cpu::make_direct_plain(), Views::all);
  append(cpu::make_depthwise(), Views::all);
  append(cpu::make_im2col(), Views::all);
  append(cpu::make_im2col_blocked(), Views::all);
  append(cpu::make_implicit_gemm(), Views::all);
  append(cpu::make_strassen(), Views::none);
  append(cpu::make_fft(), Views::all);
  append(cpu::make_fft_tiled(), Views::all);
  append(cpu::make_fft_tiled_depthwise(), Views::all);
  append(cpu::make_winograd(), Views::all);
  append(cpu::make_winograd_1d(), Views::all);
  append(cpu::make_winograd_grouped(), Views::all);
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
