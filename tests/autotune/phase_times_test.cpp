// Every CPU algorithm lists its phases in its work estimate and records those.
#include "autotune/measure/phase_times.h"

#include <gtest/gtest.h>

#include <numeric>

#include "kernels_cpu/cpu.h"

namespace convlab {
namespace {

class PhaseTimesTest : public testing::TestWithParam<std::string> {};

TEST_P(PhaseTimesTest, AreOfThePhasesThatAreEstimated) {
  const auto device = make_cpu_device({.threads = 2, .isa = ""});
  AlgoRegistry registry;
  append_cpu_algos(registry);
  int taken = 0;
  for (const ConvAlgo* algo : registry.all())
    for (const Pass pass : all_passes)
      for (const Layout layout : {Layout::nchw, Layout::nhwc, Layout::nchw8c, Layout::nchw16c}) {
        ConvProblem problem = parse_problem(GetParam()).problem;
        problem.pass = pass;
        problem.x_layout = problem.y_layout = layout;
        if (algo->refuse(problem, *device)) continue;
        ++taken;
        const Config config = algo->configs(problem, *device).front();
        const auto what = algo->info().id + " " + std::string(to_string(pass)) + " " +
                          std::string(to_string(layout));
        const WorkEstimate work = algo->work(problem, config, *device);
        EXPECT_GT(work.flops(), 0) << what;
        EXPECT_GT(work.bytes(), 0) << what;
        const PhaseTimes times = measure_phases(
            *algo, problem, config, CacheMode::hot,
            ReferenceCase(problem, 1, DataKind::normal, ReferenceCase::Evaluate::nothing), *device);
        ASSERT_EQ(times.phase_ms.size(), work.phases.size()) << what;
        for (std::size_t i = 0; i < work.phases.size(); ++i)
          EXPECT_TRUE(times.phase_ms[i] > 0 || work.phases[i].flops == 0)
              << what << " " << work.phases[i].name;
        const double sum = std::accumulate(times.phase_ms.begin(), times.phase_ms.end(), 0.0);
        EXPECT_GT(times.ms, 0) << what;
        EXPECT_LE(sum, times.ms * 1.0001) << what;
      }
  EXPECT_GT(taken, 12);
}

// The second has a stride and ragged channels, the third groups.
INSTANTIATE_TEST_SUITE_P(Problems, PhaseTimesTest,
                         testing::Values("mb2ic32ih12oc32oh12kh3ph1", "mb2ic20ih15oc24oh8kh3sh2ph1",
                                         "g32mb2ic32ih10oc32oh10kh3ph1"));

}  // namespace
}  // namespace convlab
