// The tests of tests/conv/layer_ops on the CPU: every instruction set, all layouts.
#include "kernels_cpu/cpu.h"
#include "tests/conv/layer_ops/layer_lab.h"

namespace convlab {

const LayerBackend& layer_backend() {
  static const LayerBackend backend = [] {
    LayerBackend b;
    for (const std::string& isa : supported_isas())
      b.devices.push_back({isa, [isa](int threads) { return make_cpu_device({threads, isa}); }});
    b.layouts.assign(all_layouts.begin(), all_layouts.end());
    return b;
  }();
  return backend;
}

}  // namespace convlab
