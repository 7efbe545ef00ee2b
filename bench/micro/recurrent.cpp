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
//
//   micro_recurrent --memory lstm:l1t512mb64dhc512 [--recompute]     # bytes; nothing is run
//   micro_recurrent --json --phases --pass=fwd,bwd_d --min-time=0.1 rnn:l1t64mb16dhc512
//
// --min-time ends the rounds early, once candidates have run for so many seconds on average.
// --json prints a context and benchmarks as Google Benchmark does, a case PROBLEM/PASS/ALGO/CONFIG
// with all its times in turn. --phases adds how a run's time divides into its phases.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include "autotune/store/provenance.h"
#include "bench/micro/lab.h"
#include "conv/error.h"
#include "kernels_cpu/cpu.h"
#include "recurrent/algo.h"

namespace convlab::micro {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  int rounds = 20;
  std::optional<double> min_time;  // s
  bool training = true, memory = false, json = false, phases = false;
  std::vector<Pass> passes{all_passes.begin(), all_passes.end()};
  std::vector<RecurrentProblem> problems;

  bool wants(Pass pass) const {
    return std::find(passes.begin(), passes.end(), pass) != passes.end();
  }
};

// What stays in memory between the passes, in the algorithm's format.
SavedBytes saved_bytes(const RecurrentAlgo& algo, RecurrentProblem p) {
  p.pass = Pass::backward_data;
  p.training = false;
  return algo.own_format(p, *lab().device)
      .value_or(SavedBytes{std::size_t(p.activations_bytes()), std::size_t(p.dgates_bytes())});
}

// Weights of a size that keeps states within bounds.
Buffer weights_of(const RecurrentProblem& p) {
  Buffer weights = random_floats(p.weights_elements());
  const float scale = 0.5F / std::sqrt(float(p.h));
  for (std::int64_t i = 0; i < p.weights_elements(); ++i) weights.as<float>()[i] *= scale;
  return weights;
}

// What stays between the passes, in the problem's format or in an algorithm's own.
struct Saved {
  Buffer activations, dgates;

  explicit Saved(const SavedBytes& bytes)
      : activations(random_floats(std::int64_t(bytes.activations / 4))),
        dgates(random_floats(std::int64_t(bytes.dgates / 4))) {}
};

// What else a training step reads and writes. All candidates share it, so that none has its data
// nearer in the caches, and the workspace is the largest of theirs.
struct Arrays {
  Buffer x, weights, h0, c0, y, dy, dhn, dcn, out_h, out_c, dx, dweights, workspace;

  explicit Arrays(const RecurrentProblem& p)
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
        dweights(random_floats(p.weights_elements())) {}

  void require_workspace(std::size_t bytes) {
    if (bytes > workspace.bytes()) workspace = lab().device->allocate(bytes);
  }
  RecurrentArgs args(const RecurrentProblem& p, const Saved& saved) const {
    RecurrentArgs a;
    a.x = x.data(), a.weights = weights.data(), a.h0 = h0.data(), a.c0 = c0.data();
    a.y = y.data(), a.activations = saved.activations.data(), a.dy = dy.data();
    a.dhn = dhn.data(), a.dcn = dcn.data(), a.dgates = saved.dgates.data();
    a.out = p.pass == Pass::forward         ? y.data()
            : p.pass == Pass::backward_data ? dx.data()
                                            : dweights.data();
    a.out_h = out_h.data(), a.out_c = out_c.data();
    a.out_activations = saved.activations.data(), a.out_dgates = saved.dgates.data();
    return a;
  }
};

// Adds up all threads' times.
class PhaseSums : public PhaseRecorder {
 public:
  void add(int phase, double seconds) override { seconds_.at(std::size_t(phase)) += seconds; }
  double of(std::size_t phase) const { return seconds_.at(phase); }

 private:
  std::array<std::atomic<double>, 4> seconds_{};
};

double ms_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}

double median_of(std::vector<double> values) {
  const auto middle = values.begin() + std::ptrdiff_t(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

struct Candidate {
  const RecurrentAlgo* algo;
  RecurrentProblem problem;
  Config config;
  std::shared_ptr<Arrays> arrays;
  std::shared_ptr<Saved> saved;
  std::unique_ptr<RecurrentPlan> plan;
  Buffer packed;
  double pack_ms = 0;
  std::vector<double> ms = {};

  Candidate(const RecurrentAlgo& of, const RecurrentProblem& p, Config with,
            std::shared_ptr<Arrays> data, std::shared_ptr<Saved> between)
      : algo(&of),
        problem(p),
        config(std::move(with)),
        arrays(std::move(data)),
        saved(std::move(between)),
        plan(of.plan(p, config, *lab().device)),
        packed(lab().device->allocate(plan->packed_weights_bytes())) {
    arrays->require_workspace(plan->workspace_bytes());
    if (plan->packed_weights_bytes() > 0) {
      std::vector<double> times;
      for (int i = 0; i < 3; ++i) {
        const auto start = std::chrono::steady_clock::now();
        plan->pack_weights(arrays->weights.span(), packed.span(), *lab().stream);
        times.push_back(ms_since(start));
      }
      pack_ms = median_of(times);
    }
    run();
  }
  void run(PhaseRecorder* phases = nullptr) const {
    RecurrentArgs args = arrays->args(problem, *saved);
    if (plan->packed_weights_bytes() > 0) args.weights = packed.data();
    args.phases = phases;
    plan->run(args, arrays->workspace.span(), *lab().stream);
  }
  void time() {
    const auto start = std::chrono::steady_clock::now();
    run();
    ms.push_back(ms_since(start));
  }
  double best() const { return *std::min_element(ms.begin(), ms.end()); }
  double median() const { return median_of(ms); }
  bool is_peer() const { return algo->info().origin == Origin::vendor; }
};

void tell(const Options& options, const std::string& line) {
  fmt::print(options.json ? stderr : stdout, "{}\n", line);
}

// f(problem of the pass, algorithm) for each that is not refused, in the order of passes.
template <class F>
void for_each_pass(const RecurrentRegistry& algos, const RecurrentProblem& p,
                   const Options& options, const F& f) {
  for (const RecurrentAlgo* algo : algos.for_device(DeviceKind::cpu))
    for (const Pass pass : all_passes) {
      RecurrentProblem of_pass = p;
      of_pass.pass = pass;
      of_pass.training = options.training && pass == Pass::forward;
      if (pass != Pass::forward && !options.training) continue;
      if (const auto refusal = algo->refuse(of_pass, *lab().device)) {
        if (options.wants(pass))
          tell(options,
               fmt::format("{:9} {:14} {}", to_string(pass), algo->info().id, refusal->reason()));
        continue;
      }
      f(of_pass, *algo);
    }
}

std::vector<Candidate> candidates_of(const RecurrentRegistry& algos, const RecurrentProblem& p,
                                     const Options& options) {
  std::vector<Candidate> candidates;
  const auto arrays = std::make_shared<Arrays>(p);
  std::map<const RecurrentAlgo*, std::shared_ptr<Saved>> saved;  // null: the problem's format
  for_each_pass(algos, p, options, [&](const RecurrentProblem& of_pass, const RecurrentAlgo& algo) {
    // In its own format a pass reads what the one before has written.
    const bool own_format = algo.own_format(of_pass, *lab().device).has_value();
    if (!options.wants(of_pass.pass) && !own_format) return;
    std::shared_ptr<Saved>& between = saved[own_format ? &algo : nullptr];
    if (!between) between = std::make_shared<Saved>(saved_bytes(algo, of_pass));
    for (const Config& config : algo.configs(of_pass, *lab().device))
      candidates.emplace_back(algo, of_pass, config, arrays, between);
  });
  std::erase_if(candidates, [&](const Candidate& c) { return !options.wants(c.problem.pass); });
  return candidates;
}

Json case_of(const RecurrentAlgo& algo, const RecurrentProblem& p, const Config& config,
             const RecurrentPlan& plan) {
  const SavedBytes saved = saved_bytes(algo, p);
  return {{"name", fmt::format("{}/{}/{}/{}", to_text(p), to_string(p.pass), algo.info().id,
                               config.text())},
          {"problem", to_text(p)},
          {"pass", to_string(p.pass)},
          {"algo", algo.info().id},
          {"config", config.text()},
          {"recompute", p.recompute},
          {"workspace_bytes", plan.workspace_bytes()},
          {"packed_weights_bytes", plan.packed_weights_bytes()},
          {"activations_bytes", saved.activations},
          {"dgates_bytes", saved.dgates},
          {"y_bytes", p.y_bytes()}};
}

// Of the time of all phases, with the threads' times added up.
std::vector<std::pair<std::string, double>> phase_shares(const Candidate& c) {
  constexpr double enough_ms = 5;
  PhaseSums sums;
  const auto start = std::chrono::steady_clock::now();
  do c.run(&sums);
  while (ms_since(start) < enough_ms);
  const WorkEstimate work = c.algo->work(c.problem, c.config, *lab().device);
  double all = 0;
  for (std::size_t i = 0; i < work.phases.size(); ++i) all += sums.of(i);
  std::vector<std::pair<std::string, double>> shares;
  for (std::size_t i = 0; i < work.phases.size(); ++i)
    shares.emplace_back(work.phases[i].name, sums.of(i) / std::max(all, 1e-9));
  return shares;
}

Json case_of(const Candidate& c, const Options& options) {
  Json told = case_of(*c.algo, c.problem, c.config, *c.plan);
  const WorkEstimate work = c.algo->work(c.problem, c.config, *lab().device);
  told["best_ms"] = c.best();
  told["median_ms"] = c.median();
  told["samples"] = c.ms.size();
  told["exec_GFLOP"] = work.flops() * 1e-9;
  told["best_GFLOPs"] = work.flops() / c.best() * 1e-6;
  told["pack_ms"] = c.pack_ms;
  told["ms"] = c.ms;
  if (options.phases)
    for (const auto& [phase, share] : phase_shares(c)) told["phase_shares"][phase] = share;
  return told;
}

// With --memory: plans only.
void list_memory(const RecurrentRegistry& algos, const RecurrentProblem& p, const Options& options,
                 Json& cases) {
  if (!options.json) fmt::print("{}\n", to_text(p));
  for_each_pass(algos, p, options, [&](const RecurrentProblem& of_pass, const RecurrentAlgo& algo) {
    if (!options.wants(of_pass.pass)) return;
    for (const Config& config : algo.configs(of_pass, *lab().device)) {
      const auto plan = algo.plan(of_pass, config, *lab().device);
      const Json told = case_of(algo, of_pass, config, *plan);
      if (options.json) {
        cases.push_back(told);
        continue;
      }
      const auto mib = [&](const char* field) { return told[field].get<double>() / (1 << 20); };
      fmt::print(
          "{:9} {:14} {:12} activations {:8.1f} MiB  dgates {:8.1f} MiB  "
          "workspace {:8.1f} MiB  packed weights {:8.1f} MiB\n",
          to_string(of_pass.pass), algo.info().id, config.text(), mib("activations_bytes"),
          mib("dgates_bytes"), mib("workspace_bytes"), mib("packed_weights_bytes"));
    }
  });
}

void print(const RecurrentProblem& p, const std::vector<Candidate>& candidates,
           const Options& options) {
  std::map<Pass, double> peer;
  double filter = 0;  // the fastest own one
  for (const Candidate& c : candidates) {
    if (c.is_peer())
      peer[c.problem.pass] = c.best();
    else if (c.problem.pass == Pass::backward_filter)
      filter = filter == 0 ? c.best() : std::min(filter, c.best());
  }
  const auto line = [&](std::string_view pass, const Candidate& c, double best, double median,
                        double flops, double of_peer) {
    fmt::print("{:9} {:14} {:12} best {:9.4f} ms  median {:9.4f} ms  {:7.1f} GFLOP/s  {:5.2f}x\n",
               pass, c.algo->info().id, c.config.text(), best, median, flops / best * 1e-6,
               of_peer / best);
  };
  for (const Candidate& c : candidates) {
    const Pass pass = c.problem.pass;
    line(to_string(pass), c, c.best(), c.median(), p.flops(), peer[pass]);
    if (options.phases)
      for (const auto& [phase, share] : phase_shares(c))
        fmt::print("{:24} {:12} {:4.0f}%\n", "", phase, 100 * share);
    if (pass == Pass::backward_data && !c.is_peer() && filter > 0)
      line("bwd", c, c.best() + filter, c.median() + filter, 2 * p.flops(),
           peer[pass] + peer[Pass::backward_filter]);
  }
}

void race(const RecurrentRegistry& algos, const RecurrentProblem& p, const Options& options,
          Json& cases) {
  if (!options.json) fmt::print("{}\n", to_text(p));
  std::vector<Candidate> candidates = candidates_of(algos, p, options);
  double spent_ms = 0;
  const auto enough = [&] {
    return options.min_time && spent_ms >= 1e3 * *options.min_time * double(candidates.size());
  };
  for (int round = 0; round < options.rounds && !enough(); ++round)
    for (Candidate& c : candidates) {
      c.time();
      spent_ms += c.ms.back();
    }
  if (!options.json) return print(p, candidates, options);
  for (const Candidate& c : candidates) cases.push_back(case_of(c, options));
}

// The number behind a flag's `=`, above 0.
template <class Number>
Number above_0(const std::string& word) {
  Number number{};
  const char* const end = word.data() + word.size();
  const auto [rest, error] = std::from_chars(word.data() + word.find('=') + 1, end, number);
  if (error != std::errc{} || rest != end || !(number > 0))
    throw InputError(fmt::format("{}: expected a {}number above 0", word,
                                 std::is_integral_v<Number> ? "whole " : ""));
  return number;
}

std::vector<Pass> passes_of(const std::string& list) {
  std::vector<Pass> passes;
  std::istringstream names(list + ',');
  for (std::string name; std::getline(names, name, ',');) passes.push_back(parse_pass(name));
  return passes;
}

Options parse(int argc, char** argv) {
  Options options;
  bool recompute = false;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word.starts_with("--rounds=")) {
      options.rounds = above_0<int>(word);
    } else if (word.starts_with("--min-time=")) {
      options.min_time = above_0<double>(word);
    } else if (word.starts_with("--pass=")) {
      options.passes = passes_of(word.substr(7));
    } else if (word == "--inference") {
      options.training = false;
    } else if (word == "--recompute") {
      recompute = true;
    } else if (word == "--memory") {
      options.memory = true;
    } else if (word == "--json") {
      options.json = true;
    } else if (word == "--phases") {
      options.phases = true;
    } else if (word.starts_with("--")) {
      throw InputError(fmt::format(
          "unknown flag '{}': expected a problem, as in rnn:l1t64mb1dhc512, --rounds=N, "
          "--min-time=S, --pass=LIST, --inference, --recompute, --memory, --json or "
          "--phases",
          word));
    } else {
      options.problems.push_back(parse_recurrent_problem(word).problem);
    }
  }
  if (options.problems.empty())
    for (const std::int64_t h : {512, 768})
      for (const std::int64_t n : {1, 2, 4})
        options.problems.push_back(
            parse_recurrent_problem(fmt::format("rnn:l1t64mb{}dhc{}", n, h)).problem);
  for (RecurrentProblem& p : options.problems) p.recompute = recompute;
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
    micro::Json told{{"context", micro::Json::object()}, {"benchmarks", micro::Json::array()}};
    for (const auto& [name, value] : collect_provenance(micro::lab().device->info()).fields)
      told["context"][name] = value;
    for (const RecurrentProblem& p : options.problems)
      (options.memory ? micro::list_memory : micro::race)(algos, p, options, told["benchmarks"]);
    if (options.json) fmt::print("{}\n", told.dump(1));
  } catch (const InputError& error) {
    fmt::print(stderr, "micro_recurrent: {}\n", error.what());
    return 2;
  }
}
