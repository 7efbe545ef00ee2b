// Every algorithm on given problems:
//
//   micro_convolutions mb1ic64ih56oc64oh56kh3ph1 @problems.txt --benchmark_filter=winograd
//   micro_convolutions --race --pass=fwd --exclude=fft mb1ic64ih56oc64oh56kh3ph1
//       --benchmark_enable_random_interleaving=true --benchmark_repetitions=5
//   micro_convolutions deconv:mb1ic64ih28oc32kh2sh2
//
// Counters: best_GFLOPs counts executed FLOPs; eff_over_exec is direct convolution's FLOPs over the
// executed ones. By default only default configurations run, with the ms of each phase (transforms,
// product) of one run, and nothing is verified. --race takes all configurations and judges each
// once (rel_error, and an error for a wrong result). It adds pack_ms, workspace_bytes and
// packed_filter_bytes, and to the context peak_GFLOPs, measured first. It is meant for one problem
// and pass at a time, whose candidates share their data.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "autotune/candidates.h"
#include "autotune/measure/ceilings.h"
#include "autotune/measure/phase_times.h"
#include "autotune/problem.h"
#include "autotune/testbed/verify.h"
#include "bench/micro/lab.h"
#include "conv/error.h"
#include "conv/problem_text.h"
#include "conv/registry.h"
#include "conv/text/text_file.h"
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

struct Options {
  bool race = false;
  std::optional<Pass> pass;
  std::vector<std::string> exclude;
  std::vector<LayerProblem> problems;
};

// Data shared by the candidates of one problem and pass.
struct Data {
  Data(const ConvProblem& problem, bool judged)
      : reference(problem, 1, DataKind::normal,
                  judged ? ReferenceCase::Evaluate::whole : ReferenceCase::Evaluate::nothing) {}

  Operands& in_layouts_of(const ConvProblem& problem) {
    const Layouts layouts{problem.x_layout, problem.y_layout};
    std::unique_ptr<Operands>& found = operands[layouts];
    if (!found)
      found = std::make_unique<Operands>(reference, problem, *lab().device, *lab().stream);
    return *found;
  }

  ReferenceCase reference;
  std::map<Layouts, std::unique_ptr<Operands>> operands;
  GuardedBuffer workspace;
};

// Makes the data anew when the problem changes.
std::shared_ptr<Data> data_of(const ConvProblem& problem, bool judged) {
  static std::shared_ptr<Data> last;
  const ConvProblem plain = with_layouts(problem, {Layout::nchw, Layout::nchw});
  if (!last || last->reference.problem() != plain) {
    last.reset();
    last = std::make_shared<Data>(plain, judged);
  }
  return last;
}

struct Candidate {
  const ConvAlgo* algo;
  ConvProblem problem;
  Config config;
};

// Everything a run needs. Each member refers to those before it.
struct Run {
  Run(const Candidate& c, bool judged)
      : data(data_of(c.problem, judged)),
        trial(*c.algo, c.config, data->in_layouts_of(c.problem), data->workspace, *lab().device,
              *lab().stream) {
    trial.pack();
  }
  std::shared_ptr<Data> data;
  Trial trial;
};

using Counters = std::map<std::string, double>;

Counters phases_of(const Candidate& c, const Run& run, const WorkEstimate& estimate) {
  Counters counters;
  const PhaseTimes times = measure_phases(*c.algo, c.problem, c.config, CacheMode::hot,
                                          run.data->reference, *lab().device);
  for (std::size_t i = 0; i < times.phase_ms.size(); ++i)
    counters[estimate.phases[i].name + "_ms"] = times.phase_ms[i];
  return counters;
}

double median_pack_ms(Run& run) {
  std::vector<double> ms;
  for (int i = 0; i < 5; ++i) {
    const auto start = std::chrono::steady_clock::now();
    run.trial.pack();
    ms.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
                     .count());
  }
  std::nth_element(ms.begin(), ms.begin() + 2, ms.end());
  return ms[2];
}

Counters facts_of(Run& run) {
  constexpr double max_error = 1e-3;  // wrong, not merely rounded: a column shows the error
  const CheckResult verdict = run.trial.check(run.data->reference, max_error);
  if (verdict.status != Status::ok) throw Error(verdict.reason);
  const ConvPlan& plan = run.trial.plan();
  return {{"rel_error", verdict.rel_error},
          {"pack_ms", plan.packed_filter_bytes() > 0 ? median_pack_ms(run) : 0},
          {"workspace_bytes", double(plan.workspace_bytes())},
          {"packed_filter_bytes", double(plan.packed_filter_bytes())}};
}

Work work_of(const Candidate& c, bool race, std::optional<Counters>& known) {
  const auto run = std::make_shared<Run>(c, race);
  const WorkEstimate estimate = c.algo->work(c.problem, c.config, *lab().device);
  if (!known) {  // an earlier repetition may have set it
    known = race ? facts_of(*run) : phases_of(c, *run, estimate);
    (*known)["direct_GFLOP"] = c.problem.flops() * 1e-9;
    (*known)["eff_over_exec"] = c.problem.flops() / std::max(estimate.flops(), 1.0);
  }
  return {[run] { run->trial.run(); }, 0, estimate.flops(), *known};
}

// The layouts to run an algorithm in. Our own algorithms run in their favourite: the first pair
// they take with y blocked, if there is one. In a race, vendors' algorithms run in all layouts:
// plain NCHW is best for backward_filter of a 1x1 filter over few pixels.
std::vector<Layouts> layouts_of(const ConvAlgo& algo, const ConvProblem& problem, bool race) {
  std::vector<Layouts> pairs = layout_pairs(problem, {}, lab().device->info());
  const auto rank = [](const Layouts& pair) {
    return is_blocked(pair.second) ? (is_blocked(pair.first) ? 1 : 0) : 2;
  };
  std::stable_sort(pairs.begin(), pairs.end(),
                   [&](const Layouts& a, const Layouts& b) { return rank(a) < rank(b); });
  std::erase_if(pairs, [&](const Layouts& pair) {
    return algo.refuse(with_layouts(problem, pair), *lab().device).has_value();
  });
  const bool all = race && algo.info().origin == Origin::vendor;
  if (!all && pairs.size() > 1) pairs.resize(1);
  return pairs;
}

void add_algo(LayerProblem layer, Pass pass, const ConvAlgo& algo, bool race) {
  layer.set_pass(pass);
  const ConvProblem plain = *layer.problem.conv();
  for (const Layouts& layouts : layouts_of(algo, plain, race)) {
    const ConvProblem problem = with_layouts(plain, layouts);
    std::vector<Config> configs = algo.configs(problem, *lab().device);
    if (!race) configs.resize(1);
    for (const Config& config : configs) {
      const Candidate candidate{&algo, problem, config};
      const auto known = std::make_shared<std::optional<Counters>>();
      add_case(fmt::format("{}/{}/{}/{}>{}/{}", layer.text(), to_string(pass), algo.info().id,
                           to_string(layouts.first), to_string(layouts.second), config.text()),
               [candidate, race, known] { return work_of(candidate, race, *known); });
    }
  }
}

LayerProblem parse_convolution(std::string_view text) {
  LayerProblem layer = parse_layer(text);
  if (!layer.problem.conv())
    throw InputError(fmt::format("{} is a recurrent layer: expected a convolution", text));
  return layer;
}

// Removes our own arguments and leaves Google Benchmark's.
Options take_options(int& argc, char** argv) {
  Options options;
  int kept = 1;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--race") {
      options.race = true;
    } else if (word.starts_with("--pass=")) {
      options.pass = parse_pass(word.substr(7));
    } else if (word.starts_with("--exclude=")) {
      std::istringstream names(word.substr(10));
      for (std::string name; std::getline(names, name, ',');) options.exclude.push_back(name);
    } else if (word.starts_with('-')) {
      argv[kept++] = argv[i];
    } else if (word.starts_with('@')) {
      const std::string path = word.substr(1);
      for_each_problem_line(read_text_file(path, "a file with one problem a line"), path, nullptr,
                            [&](std::string_view line) {
                              options.problems.push_back(parse_convolution(line));
                              return true;
                            });
    } else {
      options.problems.push_back(parse_convolution(word));
    }
  }
  argc = kept;
  if (options.problems.empty())
    for (const char* text : {"mb1ic64ih56oc64oh56kh3ph1", "mb1ic256ih14oc256oh14kh3ph1",
                             "mb16ic128ih28oc128oh28kh3ph1"})
      options.problems.push_back(parse_convolution(text));
  return options;
}

void add_all(const Options& options) {
  const auto admitted = admitted_algos(algos(), DeviceKind::cpu, {}, options.exclude);
  for (const LayerProblem& layer : options.problems)
    for (const Pass pass : all_passes)
      for (const ConvAlgo* algo : admitted)
        if (!options.pass || *options.pass == pass) add_algo(layer, pass, *algo, options.race);
}

}  // namespace
}  // namespace convlab::micro

int main(int argc, char** argv) {
  using namespace convlab;
  micro::prepare(argv);
  try {
    const micro::Options options = micro::take_options(argc, argv);
    micro::add_all(options);
    if (options.race)
      benchmark::AddCustomContext(
          "peak_GFLOPs",
          fmt::format("{:.1f}", ceilings_of(*micro::lab().device).flops(DType::f32) * 1e-9));
  } catch (const InputError& error) {
    fmt::print(stderr, "micro_convolutions: {}\n", error.what());
    return 2;
  }
  return micro::run_cases(argc, argv);
}
