// Checks every algorithm on one layer of ResNet-18 through the installed headers and libraries.
#include <cstdio>

#include "autotune/check.h"
#include "kernels_cpu/cpu.h"
#include "kernels_cuda/cuda.h"
#include "nets/zoo/zoo.h"

int main() {
  using namespace convlab;
  const ConvProblem problem = nets::conv_layers(nets::make_net("resnet18", 1)).at(1).layer.problem;
  const auto device = make_cpu_device();
  const auto stream = device->make_stream();
  AlgoRegistry registry;
  append_cpu_algos(registry);
  append_cuda_algos(registry);
  std::printf("cuda: %s\n", cuda_obstacle().empty() ? "a card" : cuda_obstacle().c_str());
  const ReferenceCase reference(problem, 1);
  int passed = 0, failed = 0;
  for (const ConvAlgo* algo : registry.for_device(DeviceKind::cpu)) {
    if (algo->refuse(problem, *device)) continue;
    const auto verdict = check_candidate(*algo, problem, algo->configs(problem, *device).front(),
                                         reference, *device, *stream, 1e-4);
    std::printf("%s: %s, error %.1e\n", algo->info().id.c_str(),
                std::string(to_string(verdict.status)).c_str(), verdict.rel_error);
    ++(verdict.status == Status::ok ? passed : failed);
  }
  return passed > 0 && failed == 0 ? 0 : 1;
}
