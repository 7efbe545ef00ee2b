// Real cuDNN with a description of an H200, which need not be present: the engines it offers for
// our graphs, and that each makes a plan.
#include <gtest/gtest.h>

#include <string_view>

#include "conv/error.h"
#include "kernels_cuda/cudnn/graph.h"

namespace convlab::cuda {
namespace {

CONVLAB_LAZY_FUNCTION(cudnn_library, cudnnSetCallback);

const CudnnTarget& h200() {
  static const CudnnTarget target(R"({
    "deviceName": "NVIDIA H200", "deviceVer": 900, "driverVer": 13000, "pciDeviceId": 9013,
    "cudaDeviceId": 0, "multiProcessorCount": 132, "warpSize": 32, "isTccDriver": 0,
    "supportCoopLaunch": 1, "smClockRateKHz": 1980000, "memClockRateKHz": 3201000,
    "totalGlobalMem": 150000000000, "l2CacheSize": 62914560, "regsPerBlock": 65536,
    "maxRegistersPerSM": 65536, "maxSharedMemoryPerBlock": 49152,
    "maxSharedMemoryPerBlockOptin": 232448, "reservedSharedMemoryPerBlock": 1024,
    "maxCtasPerSM": 32, "maxThreadsPerBlock": 1024, "maxThreadsPerSM": 2048,
    "maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64]})");
  return target;
}

// The number of engines that make a plan; every engine offered must make one.
int plans(const ConvProblem& p, MathType math) {
  const OperationGraph graph(p, h200());
  const std::vector<Node> engines = graph.engines(math);
  for (const Node& engine : engines)
    EXPECT_LT(workspace_bytes(execution_plan(engine, h200())), std::size_t(1) << 32);
  return int(engines.size());
}

ConvProblem problem(const char* text) { return parse_problem(text).problem; }

TEST(CudnnGraph, HasEnginesForEveryPassTypeAndLayout) {
  for (const char* text :
       {"mb16ic64ih56oc64oh56kh3ph1", "mb4ic32ih28oc64kh1", "mb2ic3ih32oc8kh7ph3sh2"})
    for (const Pass pass : all_passes)
      for (const DType dtype : all_dtypes)
        for (const Layout layout : {Layout::nchw, Layout::nhwc})
          for (const MathType math : math_types(dtype)) {
            ConvProblem p = problem(text);
            p.pass = pass;
            p.dtype = dtype;
            p.x_layout = p.y_layout = layout;
            EXPECT_GT(plans(p, math), 0)
                << text << " " << to_string(pass) << " " << to_string(dtype) << " "
                << to_string(layout) << " math=" << math_type_names[std::size_t(math)];
          }
}

// Plans take long on a card. cuDNN tells of each descriptor that it makes.
TEST(CudnnGraph, ListsEnginesWithoutPlans) {
  static int plans_made = 0;
  // Lines that end in zeros, an empty one last.
  const auto hear = [](cudnnSeverity_t, void*, const cudnnDebug_t*, const char* said) {
    for (std::string_view line = said; !line.empty(); line = line.data() + line.size() + 1)
      plans_made += line.find("CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR") != line.npos;
  };
  check(cudnnSetCallback(CUDNN_SEV_INFO_EN, nullptr, hear), "cudnnSetCallback");
  const ConvProblem p = problem("mb16ic64ih56oc64oh56kh3ph1");
  EXPECT_EQ(list_engines(p, h200(), 2), (std::vector<Config>{{{"rank", 0}, {"math", "f32"}},
                                                             {{"rank", 1}, {"math", "f32"}},
                                                             {{"rank", 0}, {"math", "tf32"}},
                                                             {{"rank", 1}, {"math", "tf32"}}}));
  EXPECT_EQ(plans_made, 0);
  execution_plan(OperationGraph(p, h200()).engines(MathType::f32).front(), h200());
  EXPECT_GT(plans_made, 0);
  check(cudnnSetCallback(0, nullptr, nullptr), "cudnnSetCallback");
}

TEST(CudnnGraph, TakesWhatTheOlderInterfaceDoesNot) {
  ConvProblem p = problem("mb4ic16ih9oc16oh8kh3ph1");
  EXPECT_NE(refuse_shape(p, CudnnInterface::legacy), std::nullopt);
  EXPECT_EQ(refuse_shape(p, CudnnInterface::graph), std::nullopt);
  EXPECT_GT(plans(p, MathType::f32), 0);
  EXPECT_GT(plans(problem("mb4g4ic16ih9oc16kh3ph2dh1"), MathType::f32), 0);
}

TEST(CudnnGraph, AddsToItsOutput) {
  for (const Pass pass : all_passes) {
    ConvProblem p = problem("mb4ic32ih28oc32kh3ph1");
    p.pass = pass;
    p.accumulate = true;
    EXPECT_GT(plans(p, MathType::f32), 0) << to_string(pass);
  }
}

TEST(CudnnGraph, FusesTheEpilogue) {
  for (const Epilogue epilogue :
       {Epilogue{.bias = true}, Epilogue{.bias = true, .activation = ActivationKind::relu},
        Epilogue{.bias = true, .residual = true, .activation = ActivationKind::relu}})
    for (const MathType math : {MathType::f32, MathType::tf32}) {
      ConvProblem p = problem("mb4ic32ih28oc32kh3ph1");
      p.epilogue = epilogue;
      EXPECT_GT(plans(p, math), 0)
          << epilogue.residual << epilogue.activation.has_value() << int(math);
    }
}

TEST(CudnnGraph, ACardMustBeDescribedInFull) { EXPECT_THROW(CudnnTarget("{}"), CudaError); }

}  // namespace
}  // namespace convlab::cuda
