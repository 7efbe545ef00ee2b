#include "autotune/race/runner.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "autotune/candidates.h"
#include "conv/refusals.h"
#include "kernels_cpu/cpu.h"
#include "tests/autotune/test_algos.h"
#include "tests/cpu_backed_device.h"

namespace convlab {
namespace {

// "tired" fails at its third run: the check is the first, and a sample takes one or two.
double sample_of_tired(double expected_ms, CacheMode cache) {
  Algos algos;
  append_test_algos(algos.conv);
  const auto device = make_cpu_device();
  RunnerOptions options;
  options.problem = parse_problem("mb1ic4ih6oc8oh6kh3ph1").problem;
  options.cache = cache;
  LocalRunner runner(options, algos, *device);
  Candidate c = new_candidate(algos.conv.get(DeviceKind::cpu, "tired"), options.problem, cache,
                              device->info());
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

// A card's stream captures the timed work into a graph, during which it may not allocate, copy or
// wait.
class CapturingDevice : public CpuBackedDevice {
 public:
  Buffer allocate(std::size_t bytes) override {
    EXPECT_FALSE(capturing_);
    return CpuBackedDevice::allocate(bytes);
  }
  void copy_to_device(std::byte* to, ConstSpan from, Stream& stream) override {
    EXPECT_FALSE(capturing_);
    CpuBackedDevice::copy_to_device(to, from, stream);
  }
  std::unique_ptr<Stream> make_stream() override { return std::make_unique<Capturing>(*this); }

 private:
  struct Capturing final : Stream {
    explicit Capturing(CapturingDevice& d) : device(d) {}
    void synchronize() override { EXPECT_FALSE(device.capturing_); }
    double time(const std::function<void()>& enqueue, int) override {
      device.capturing_ = true;
      enqueue();
      device.capturing_ = false;
      return 1e-3;
    }
    CapturingDevice& device;
  };
  bool capturing_ = false;
};

TEST(LocalRunner, TheSharedWorkspaceHasItsSizeBeforeTheTimeBegins) {
  Algos algos;
  append_cpu_algos(algos.conv);
  for (const CacheMode cache : {CacheMode::hot, CacheMode::cold}) {
    CapturingDevice device;
    RunnerOptions options;
    options.problem = parse_problem("mb1ic8ih8oc8oh8kh3ph1").problem;
    options.cache = cache;
    LocalRunner runner(options, algos, device);
    std::vector<Candidate> candidates;
    const Layout blocked = blocked_layout(device.info());
    for (const auto& [id, layout] : {std::pair("im2col", Layout::nchw), {"winograd", blocked}}) {
      const AlgoRef algo = algos.conv.get(DeviceKind::cpu, id);
      const Problem problem = options.problem.with_layouts({layout, layout});
      Candidate& c = candidates.emplace_back(new_candidate(algo, problem, cache, device.info()));
      ASSERT_FALSE(algo.refuse(problem, device));
      c.config = algo.configs(problem, device).front();
      c.ms = 200;  // so long that no run comes before it
      runner.prepare(c);
      ASSERT_EQ(c.status, Status::ok) << c.reason;
    }
    ASSERT_NE(candidates[0].workspace_bytes, candidates[1].workspace_bytes);
    for (const Candidate& c : candidates) EXPECT_GT(runner.sample(c, Timed::run, 1).seconds, 0);
  }
}

}  // namespace
}  // namespace convlab
