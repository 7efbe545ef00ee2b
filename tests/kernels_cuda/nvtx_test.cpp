// The NVTX calls that a net on the device makes. They are received here as Nsight Systems would
// receive them.
#include <gtest/gtest.h>
#include <nvtx3/nvToolsExt.h>

#include <string>
#include <vector>

#include "kernels_cuda/cuda.h"
#include "tests/kernels_cuda/one_algo.h"
#include "tests/nets/net_lab.h"

namespace {

using Words = std::vector<std::string>;
thread_local Words told;  // "+name", "-"; NVTX's ranges are a thread's too

int NVTX_API push(const char* name) {
  told.push_back(std::string("+") + name);
  return 0;
}
int NVTX_API pop() {
  told.emplace_back("-");
  return 0;
}

int NVTX_API listen(NvtxGetExportTableFunc_t get_table) {
  const auto* const callbacks =
      static_cast<const NvtxExportTableCallbacks*>(get_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned size = 0;
  if (!callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &table, &size)) return 0;
  *table[NVTX_CBID_CORE_RangePushA] = reinterpret_cast<NvtxFunctionPointer>(&push);
  *table[NVTX_CBID_CORE_RangePop] = reinterpret_cast<NvtxFunctionPointer>(&pop);
  return 1;
}

// Set before anything calls NVTX: the pointer through which NVTX finds a linked-in profiler.
[[maybe_unused]] const bool listening = (InitializeInjectionNvtx2_fnptr = &listen, true);

}  // namespace

namespace convlab {

using namespace nets;
namespace {

TEST(Nvtx, NamesEachLayerAndPhaseInsideItsPass) {
  if (const std::string obstacle = cuda_obstacle(); !obstacle.empty()) GTEST_SKIP() << obstacle;
  const std::unique_ptr<Device> device = make_cuda_device();
  Graph graph("two");
  graph.add("input", Input{{2, 3, 6, 6}}, {});
  graph.add("conv", Conv{.filters = 4, .kernel = 3, .pad = 1}, {0});
  graph.add("fc", Linear{1}, {1});
  const NetPlan plan = uniform_plan(graph, Mode::training, DType::f32, "direct", Layout::nchw,
                                    *device, 0, cuda_registry());
  NetLab lab(graph, plan, *device, {.loss = Loss::squared_error}, 1, cuda_registry());
  told.clear();
  lab.net().forward();
  EXPECT_EQ(told, Words({"+forward", "+conv fwd", "-", "+fc fwd", "-", "-"}));
  told.clear();
  lab.net().backward();
  EXPECT_EQ(told,
            Words({"+backward", "+fc bwd_w", "-", "+fc bwd_d", "-", "+conv bwd_w", "-", "-"}));
  told.clear();
  lab.net().update(SgdDesc{});
  EXPECT_EQ(told, Words({"+update", "+conv update", "-", "+fc update", "-", "-"}));
}

}  // namespace
}  // namespace convlab
