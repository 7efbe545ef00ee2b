#include "autotune/runner.h"

#include <gtest/gtest.h>

#include "autotune/candidates.h"
#include "kernels_cpu/cpu.h"
#include "tests/autotune/test_algos.h"

namespace convlab {
namespace {

// "tired" gives up at its third run: the check is the first, a sample takes one or two.
double sample_of_tired(double expected_ms, CacheMode cache) {
  AlgoRegistry registry;
  append_test_algos(registry);
  const auto device = make_cpu_device();
  RunnerOptions options;
  options.problem = parse_problem("mb1ic4ih6oc8oh6kh3ph1").problem;
  options.cache = cache;
  LocalRunner runner(options, registry, *device);
  Candidate c = new_candidate(registry.get(DeviceKind::cpu, "tired"), {Layout::nchw, Layout::nchw},
                              cache, device->info());
  c.ms = expected_ms;
  runner.prepare(c);
  EXPECT_EQ(c.status, Status::ok) << c.reason;
  return runner.sample(c, Timed::run, 1).seconds;
}

TEST(LocalRunner, ALongRunNeedsNoneBeforeIt) {
  EXPECT_GT(sample_of_tired(200, CacheMode::hot), 0);
  EXPECT_THROW(sample_of_tired(1, CacheMode::hot), CandidateLost);
  EXPECT_GT(sample_of_tired(1, CacheMode::cold), 0);
}

}  // namespace
}  // namespace convlab
