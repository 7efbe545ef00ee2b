// Every algorithm on given problems, in its default configuration, layout and all three passes:
//
//   micro_convolutions mb1ic64ih56oc64oh56kh3ph1 @problems.txt --benchmark_filter=winograd
//
// Counters: best_GFLOPs as executed, eff_over_exec, direct convolution's FLOPs over the executed,
// and the ms of each phase (transforms, product) of one run. Nothing is verified here: that is
// `convlab check`'s.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "autotune/candidates.h"
#include "autotune/phase_times.h"
#include "autotune/verify.h"
#include "bench/micro/lab.h"
#include "conv/error.h"
#include "conv/registry.h"
#include "kernels_cpu/cpu.h"

namespace convlab::micro {
namespace {

const AlgoRegistry& algos() {
  static const AlgoRegistry registry = [] {
    AlgoRegistry all;
    append_cpu_algos(all);
    return all;
  }();
  return registry;
}

// What a run needs, kept together: each refers to those before it.
struct Run {
  Run(const ConvAlgo& algo, const ConvProblem& problem, const Config& config)
      : data(problem, 1, DataKind::normal, false),
        operands(data, problem, *lab().device, *lab().stream),
        trial(algo, config, operands, workspace, *lab().device, *lab().stream) {
    trial.pack();
  }
  ReferenceCase data;
  Operands operands;
  GuardedBuffer workspace;
  Trial trial;
};

Work work_of(const ConvAlgo& algo, const ConvProblem& problem) {
  const Config config = algo.configs(problem, *lab().device).front();
  const auto run = std::make_shared<Run>(algo, problem, config);
  const WorkEstimate estimate = algo.work(problem, config, *lab().device);
  Work work{[run] { run->trial.run(); }, 0, estimate.flops(), {}};
  work.counters["eff_over_exec"] = problem.flops() / std::max(estimate.flops(), 1.0);
  const PhaseTimes times =
      measure_phases(algo, problem, config, CacheMode::hot, run->data, *lab().device);
  for (std::size_t i = 0; i < times.phase_ms.size(); ++i)
    work.counters[estimate.phases[i].name + "_ms"] = times.phase_ms[i];
  return work;
}

// In the first layouts that the algorithm takes, its favourites.
void add_problem(const NamedProblem& named) {
  for (const Pass pass : all_passes)
    for (const ConvAlgo* algo : admitted_algos(algos(), DeviceKind::cpu, {}, {}))
      for (const Layouts& layouts : layout_pairs(named.problem, {}, lab().device->info())) {
        ConvProblem problem = with_layouts(named.problem, layouts);
        problem.pass = pass;
        if (algo->refuse(problem, *lab().device)) continue;
        add_case(fmt::format("{}/{}/{}/{}>{}", to_text(named.problem), to_string(pass),
                             algo->info().id, to_string(layouts.first), to_string(layouts.second)),
                 [algo, problem] { return work_of(*algo, problem); });
        break;
      }
}

// Takes the problems out of the arguments and leaves the rest.
int add_all(int argc, char** argv) {
  std::vector<NamedProblem> problems;
  int kept = 1;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word.starts_with('-')) {
      argv[kept++] = argv[i];
    } else if (word.starts_with('@')) {
      for (const NamedProblem& p : read_problem_file(word.substr(1))) problems.push_back(p);
    } else {
      problems.push_back(parse_problem(word));
    }
  }
  if (problems.empty())
    for (const char* text : {"mb1ic64ih56oc64oh56kh3ph1", "mb1ic256ih14oc256oh14kh3ph1",
                             "mb16ic128ih28oc128oh28kh3ph1"})
      problems.push_back(parse_problem(text));
  for (const NamedProblem& problem : problems) add_problem(problem);
  return kept;
}

}  // namespace
}  // namespace convlab::micro

int main(int argc, char** argv) {
  convlab::micro::prepare(argv);
  try {
    argc = convlab::micro::add_all(argc, argv);
  } catch (const convlab::InputError& error) {
    fmt::print(stderr, "micro_convolutions: {}\n", error.what());
    return 2;
  }
  return convlab::micro::run_cases(argc, argv);
}
