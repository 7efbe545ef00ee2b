// Recurrent layers raced: every algorithm and config in turns, a round each, with oneDNN's among
// them.
//
//   micro_recurrent rnn:l1t64mb1slc512dhc512 lstm:l1t32mb64dhc512 [--rounds=20] [--pass=fwd]
//       [--inference]
//
// A line each: the best and the median time, GFLOP/s of the best, and the ratio of oneDNN's best
// time to it (above 1: faster than oneDNN). oneDNN's backward pass computes dx and dweights at
// once, under bwd_d. So there is also a line `bwd` for an algorithm's bwd_d plus the fastest own
// bwd_w, against oneDNN's bwd_d and bwd_w.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/micro/lab.h"
#include "conv/error.h"
#include "kernels_cpu/cpu.h"
#include "recurrent/algo.h"

namespace convlab::micro {
namespace {

struct Options {
  int rounds = 20;
  bool training = true;
  std::optional<Pass> pass;
  std::vector<RecurrentProblem> problems;
};

// Weights of a size that keeps states within bounds.
Buffer weights_of(const RecurrentProblem& p) {
  Buffer weights = random_floats(p.weights_elements());
  const float scale = 0.5F / std::sqrt(float(p.h));
  for (std::int64_t i = 0; i < p.weights_elements(); ++i) weights.as<float>()[i] *= scale;
  return weights;
}

// What one training step of an algorithm reads and writes.
struct Arrays {
  Buffer x, weights, h0, c0, y, dy, dhn, dcn, out_h, out_c, dx, dweights, activations, dgates;

  Arrays(const RecurrentProblem& p, const RecurrentAlgo& algo)
      : x(random_floats(p.x_elements())),
        weights(weights_of(p)),
        h0(random_floats(p.state_elements())),
        c0(random_floats(p.state_elements())),
        y(random_floats(p.y_elements())),
        dy(random_floats(p.y_elements())),
        dhn(random_floats(p.state_elements())),
        dcn(random_floats(p.state_elements())),
        out_h(random_floats(p.state_elements())),
        out_c(random_floats(p.state_elements())),
        dx(random_floats(p.x_elements())),
        dweights(random_floats(p.weights_elements())) {
    RecurrentProblem backward = p;
    backward.pass = Pass::backward_data;
    backward.training = false;
    const SavedBytes saved = algo.own_format(backward, *lab().device)
                                 .value_or(SavedBytes{std::size_t(p.activations_bytes()),
                                                      std::size_t(p.dgates_bytes())});
    activations = random_floats(std::int64_t(saved.activations / 4));
    dgates = random_floats(std::int64_t(saved.dgates / 4));
  }

  RecurrentArgs args(const RecurrentProblem& p) const {
    RecurrentArgs a;
    a.x = x.data(), a.weights = weights.data(), a.h0 = h0.data(), a.c0 = c0.data();
    a.y = y.data(), a.activations = activations.data(), a.dy = dy.data();
    a.dhn = dhn.data(), a.dcn = dcn.data(), a.dgates = dgates.data();
    a.out = p.pass == Pass::forward         ? y.data()
            : p.pass == Pass::backward_data ? dx.data()
                                            : dweights.data();
    a.out_h = out_h.data(), a.out_c = out_c.data();
    a.out_activations = activations.data(), a.out_dgates = dgates.data();
    return a;
  }
};

struct Candidate {
  const RecurrentAlgo* algo;
  RecurrentProblem problem;
  Config config;
  std::shared_ptr<Arrays> arrays;
  std::unique_ptr<RecurrentPlan> plan;
  Buffer packed, workspace;
  std::vector<double> ms = {};

  Candidate(const RecurrentAlgo& of, const RecurrentProblem& p, Config with,
            std::shared_ptr<Arrays> data)
      : algo(&of),
        problem(p),
        config(std::move(with)),
        arrays(std::move(data)),
        plan(of.plan(p, config, *lab().device)),
        packed(lab().device->allocate(plan->packed_weights_bytes())),
        workspace(lab().device->allocate(plan->workspace_bytes())) {
    if (plan->packed_weights_bytes() > 0)
      plan->pack_weights(arrays->weights.span(), packed.span(), *lab().stream);
    run();
  }
  void run() const {
    RecurrentArgs args = arrays->args(problem);
    if (plan->packed_weights_bytes() > 0) args.weights = packed.data();
    plan->run(args, workspace.span(), *lab().stream);
  }
  void time() {
    const auto start = std::chrono::steady_clock::now();
    run();
    const std::chrono::duration<double, std::milli> spent =
        std::chrono::steady_clock::now() - start;
    ms.push_back(spent.count());
  }
  double best() const { return *std::min_element(ms.begin(), ms.end()); }
  double median() const {
    std::vector<double> sorted = ms;
    std::nth_element(sorted.begin(), sorted.begin() + std::ptrdiff_t(sorted.size() / 2),
                     sorted.end());
    return sorted[sorted.size() / 2];
  }
  bool is_peer() const { return algo->info().origin == Origin::vendor; }
};

// In the order of passes, so that each has its inputs.
std::vector<Candidate> candidates_of(const RecurrentRegistry& algos, const RecurrentProblem& p,
                                     const Options& options) {
  std::vector<Candidate> candidates;
  for (const RecurrentAlgo* algo : algos.for_device(DeviceKind::cpu)) {
    std::shared_ptr<Arrays> arrays;
    for (const Pass pass : all_passes) {
      RecurrentProblem of_pass = p;
      of_pass.pass = pass;
      of_pass.training = options.training && pass == Pass::forward;
      if (const auto refusal = algo->refuse(of_pass, *lab().device)) {
        fmt::print("{:9} {:14} {}\n", to_string(pass), algo->info().id, refusal->reason());
        continue;
      }
      if (!arrays) arrays = std::make_shared<Arrays>(of_pass, *algo);
      if (pass == Pass::backward_data && !options.training) break;
      for (const Config& config : algo->configs(of_pass, *lab().device))
        candidates.emplace_back(*algo, of_pass, config, arrays);
    }
  }
  if (options.pass)
    std::erase_if(candidates, [&](const Candidate& c) { return c.problem.pass != *options.pass; });
  return candidates;
}

void race(const RecurrentRegistry& algos, const RecurrentProblem& p, const Options& options) {
  fmt::print("{}\n", to_text(p));
  std::vector<Candidate> candidates = candidates_of(algos, p, options);
  for (int round = 0; round < options.rounds; ++round)
    for (Candidate& c : candidates) c.time();
  std::map<Pass, double> peer;
  double filter = 0;  // the fastest own one
  for (const Candidate& c : candidates) {
    if (c.is_peer())
      peer[c.problem.pass] = c.best();
    else if (c.problem.pass == Pass::backward_filter)
      filter = filter == 0 ? c.best() : std::min(filter, c.best());
  }
  const auto print = [&](std::string_view pass, const Candidate& c, double best, double median,
                         double flops, double of_peer) {
    fmt::print("{:9} {:14} {:12} best {:9.4f} ms  median {:9.4f} ms  {:7.1f} GFLOP/s  {:5.2f}x\n",
               pass, c.algo->info().id, c.config.text(), best, median, flops / best * 1e-6,
               of_peer / best);
  };
  for (const Candidate& c : candidates) {
    const Pass pass = c.problem.pass;
    print(to_string(pass), c, c.best(), c.median(), p.flops(), peer[pass]);
    if (pass == Pass::backward_data && !c.is_peer() && filter > 0)
      print("bwd", c, c.best() + filter, c.median() + filter, 2 * p.flops(),
            peer[pass] + peer[Pass::backward_filter]);
  }
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word.starts_with("--rounds=")) {
      options.rounds = std::max(1, std::atoi(word.c_str() + 9));
    } else if (word.starts_with("--pass=")) {
      options.pass = parse_pass(word.substr(7));
    } else if (word == "--inference") {
      options.training = false;
    } else {
      options.problems.push_back(parse_recurrent_problem(word).problem);
    }
  }
  if (options.problems.empty())
    for (const std::int64_t h : {512, 768})
      for (const std::int64_t n : {1, 2, 4})
        options.problems.push_back(
            parse_recurrent_problem(fmt::format("rnn:l1t64mb{}dhc{}", n, h)).problem);
  return options;
}

}  // namespace
}  // namespace convlab::micro

int main(int argc, char** argv) {
  using namespace convlab;
  micro::prepare(argv);
  try {
    RecurrentRegistry algos;
    append_cpu_recurrent_algos(algos);
    const micro::Options options = micro::parse(argc, argv);
    for (const RecurrentProblem& p : options.problems) micro::race(algos, p, options);
  } catch (const InputError& error) {
    fmt::print(stderr, "micro_recurrent: {}\n", error.what());
    return 2;
  }
}
