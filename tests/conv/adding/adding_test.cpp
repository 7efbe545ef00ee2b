// The algorithms that conv/ADDING_AN_ALGORITHM.md shows, in a registry of their own, against the
// reference. .ci/run compares the page with their files.
#include <gtest/gtest.h>

#include "autotune/check.h"
#include "conv/registry.h"
#include "kernels_cpu/cpu.h"
#ifdef CONVLAB_CUDA_ON_CPU
#include "kernels_cuda/cuda.h"
#endif

namespace convlab {

namespace cpu {
std::unique_ptr<ConvAlgo> make_pointwise();
}
namespace cuda {
std::unique_ptr<ConvAlgo> make_pointwise();
}

namespace {

struct Case {
  std::string text;
  std::optional<Field> refused = {};
  Layout x_layout = Layout::nchw;
};

void expect_taken_and_right(std::unique_ptr<ConvAlgo> made, Device& device) {
  AlgoRegistry registry;
  registry.append(std::move(made));
  const ConvAlgo& algo = registry.get(device.info().kind, "pointwise");
  const auto stream = device.make_stream();
  for (const auto& [text, refused, x_layout] :
       {Case{"mb2ic5ih7iw9oc3oh7ow9kh1ph0"}, Case{"mb1ic20ih13oc33oh13kh1ph0"},
        Case{"mb2ic4ih6oc4oh6kh3ph1", Field::filter},
        Case{"mb2ic4ih6oc4oh3kh1sh2ph0", Field::stride},
        Case{"g2mb2ic4ih6oc4oh6kh1ph0", Field::groups},
        Case{"mb2ic4ih6oc4oh8kh1ph1", Field::padding},
        Case{"mb2ic4ih6oc4oh6kh1ph0", Field::layout, Layout::nhwc}}) {
    ConvProblem p = parse_problem(text).problem;
    p.x_layout = x_layout;
    const std::optional<Refusal> refusal = algo.refuse(p, device);
    ASSERT_EQ(refusal.has_value(), refused.has_value()) << text;
    if (refusal) {
      EXPECT_EQ(refusal->field, *refused) << text << ": " << refusal->reason();
      continue;
    }
    const ReferenceCase reference(p, 1, DataKind::small_integers);
    const CheckResult found =
        check_candidate(algo, p, algo.configs(p, device).front(), reference, device, *stream, 0);
    EXPECT_EQ(found.status, Status::ok) << text << ": " << found.reason;
  }
}

TEST(AddingAnAlgorithm, TheCpusExampleIsRight) {
  expect_taken_and_right(cpu::make_pointwise(), *make_cpu_device({.threads = 2, .isa = {}}));
}

#ifdef CONVLAB_CUDA_ON_CPU
TEST(AddingAnAlgorithm, TheCardsExampleIsRightOnTheCpu) {
  expect_taken_and_right(cuda::make_pointwise(), *make_cuda_device());
}
#endif

}  // namespace
}  // namespace convlab
