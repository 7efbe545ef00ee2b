// Fewer OpenMP threads than requested: every algorithm is right with any team size, and devices are
// made only with available threads.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <omp.h>
#include <sys/resource.h>
#include <unistd.h>

#include <functional>

#include "autotune/measure/ceilings.h"
#include "autotune/testbed/verify.h"
#include "conv/error.h"
#include "kernels_cpu/cpu.h"

namespace convlab {
namespace {

// Runs a function in a context where OpenMP gives fewer threads than a plan was made for.
struct Surroundings {
  std::string name;
  std::function<void(const std::function<void()>&)> run;
};

const std::vector<Surroundings>& surroundings() {
  static const std::vector<Surroundings> all{
      {"inside a parallel region",
       [](const auto& f) {
#pragma omp parallel num_threads(2)
#pragma omp single
         f();
       }},
      {"without active levels",
       [](const auto& f) {
         const int before = omp_get_max_active_levels();
         omp_set_max_active_levels(0);
         f();
         omp_set_max_active_levels(before);
       }},
      {"with dynamic adjustment",
       [](const auto& f) {
         omp_set_dynamic(1);
         f();
         omp_set_dynamic(0);
       }},
  };
  return all;
}

// More threads than processors, so that dynamic adjustment gives fewer, but at least one.
int many_threads() { return omp_get_num_procs() + 3; }

class Teams : public testing::TestWithParam<const char*> {};

TEST_P(Teams, EveryAlgoIsRightWithFewerThreads) {
  AlgoRegistry registry;
  append_cpu_algos(registry);
  const auto device = make_cpu_device({many_threads(), ""});
  const auto stream = device->make_stream();
  ConvProblem p = parse_problem(GetParam()).problem;
  int ran = 0;
  for (const Pass pass : all_passes) {
    p.pass = pass;
    p.x_layout = p.y_layout = Layout::nchw;
    const ReferenceCase reference(p, 1, DataKind::small_integers);
    for (const Layout layout : all_layouts)
      for (const ConvAlgo* algo : registry.for_device(DeviceKind::cpu)) {
        p.x_layout = p.y_layout = layout;
        if (algo->refuse(p, *device)) continue;
        for (const Config& config : algo->configs(p, *device))
          for (const Surroundings& few : surroundings()) {
            SCOPED_TRACE(fmt::format("{} {} '{}' {} {}", algo->info().id, to_string(pass),
                                     config.text(), to_string(layout), few.name));
            Operands operands(reference, p, *device, *stream);
            GuardedBuffer workspace;
            Trial trial(*algo, config, operands, workspace, *device, *stream);
            std::string error;
            CheckResult verdict;
            few.run([&] {
              try {
                verdict = trial.check(reference, 5e-5);
              } catch (const EnvironmentError& e) {
                error = e.what();
              }
            });
            ++ran;
            // A primitive cannot run with fewer threads than it was made for, and says so.
            if (algo->info().origin == Origin::vendor && !error.empty()) {
              EXPECT_NE(error.find("threads"), std::string::npos) << error;
              continue;
            }
            EXPECT_EQ(error, "");
            EXPECT_EQ(verdict.status, Status::ok) << verdict.reason;
          }
      }
  }
  EXPECT_GT(ran, 50);
}

INSTANTIATE_TEST_SUITE_P(Problems, Teams,
                         testing::Values("mb1ic16ih14oc16oh14kh3ph1", "mb2ic36ih9oc20oh9kh3ph1",
                                         "mb2ic5ih9oc33oh5kh3sh2ph1"));

TEST(Threads, ADeviceMadeInsideAParallelRegionHasOne) {
  int threads = 0;
  bool refused = false;
#pragma omp parallel num_threads(2)
#pragma omp single
  {
    threads = make_cpu_device()->info().threads;
    try {
      make_cpu_device({2, ""});
    } catch (const EnvironmentError&) {
      refused = true;
    }
  }
  EXPECT_EQ(threads, 1);
  EXPECT_TRUE(refused);
}

TEST(Threads, MoreThanAnyMachineHasAreRefused) {
  EXPECT_THROW(make_cpu_device({most_threads + 1, ""}), InputError);
  EXPECT_THROW(make_cpu_device({2147483647, ""}), InputError);
  EXPECT_THROW(make_cpu_device({-1, ""}), InputError);
}

// OpenMP itself would end the process. This exits as the program does for environment errors: 3,
// with the message.
[[noreturn]] void make_device_and_exit(int threads) {
  try {
    make_cpu_device({threads, ""});
  } catch (const EnvironmentError& e) {
    fmt::print(stderr, "{}\n", e.what());
    std::_Exit(3);
  }
  std::_Exit(0);
}

TEST(ThreadsDeathTest, ThatTheSystemDoesNotGiveAreAnError) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const auto few_threads = [] {
    const rlimit limit{4, 4};
    setrlimit(RLIMIT_NPROC, &limit);
    if (getuid() == 0 && setuid(54321) != 0) std::_Exit(4);  // root has no limit
    make_device_and_exit(700);
  };
  EXPECT_EXIT(few_threads(), testing::ExitedWithCode(3), "cannot start 700 threads");
}

TEST(ThreadsDeathTest, WithTinyStacksAreAnError) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const auto tiny_stacks = [] {
    setenv("OMP_STACKSIZE", "16k", 1);
    make_device_and_exit(2);
  };
  EXPECT_EXIT(tiny_stacks(), testing::ExitedWithCode(3), "stacks of 16 KiB");
}

TEST(Threads, ARoundTripBetweenThreadsThatAreNotThereIsNone) {
  const auto device = make_cpu_device({2, ""});
  double seconds = -1;
  surroundings()[1].run([&] { seconds = measure_round_trip(device->info().threads); });
  EXPECT_EQ(seconds, 0);
}

}  // namespace
}  // namespace convlab
