// The tests of tests/conv/layer_ops on the CPU: every instruction set, all layouts.
#include "conv/error.h"
#include "kernels_cpu/cpu.h"
#include "tests/conv/layer_ops/layer_lab.h"

namespace convlab {

const LayerBackend& layer_backend() {
  static const LayerBackend backend = [] {
    LayerBackend b;
    for (const std::string& isa : supported_isas())
      b.devices.push_back({isa, [isa](int threads) { return make_cpu_device({threads, isa}); }});
    b.has_16_bits = true;
    b.layouts.assign(all_layouts.begin(), all_layouts.end());
    return b;
  }();
  return backend;
}

namespace {

// OpenBLAS takes sizes as int, so larger ones would be truncated.
TEST(CpuLayerOps, RefuseProductsTooLargeForOpenBlas) {
  const LayerLab lab;
  const std::int64_t large = std::int64_t{1} << 31;
  for (const GemmDesc& g : {GemmDesc{large, 65, 65}, GemmDesc{65, large, 65},
                            GemmDesc{65, 65, large}, GemmDesc{large, 65, 65, true}})
    EXPECT_THROW(lab.ops().gemm(DType::f32, g, nullptr, nullptr, nullptr, lab.stream()),
                 InputError);
}

// A product larger than every cache is written with non-temporal stores.
TEST(CpuLayerOps, WriteLargeProductsToTheLastElement) {
  const std::int64_t m = 1029, n = 8192;  // 33.7 MB in f32
  const Values a = random_values(m, 1), b = random_values(n, 2);
  const LayerLab lab(3);
  auto first = lab.array(a), second = lab.array(b), out = lab.array(m * n);
  lab.ops().gemm(DType::f32, {m, n, 1}, first.data(), second.data(), out.data(), lab.stream());
  const Values c = out.values();
  std::int64_t wrong = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    for (std::size_t j = 0; j < b.size(); ++j)
      wrong += !(c[i * b.size() + j] == double(float(a[i]) * float(b[j])));
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace convlab
