// Depthwise separable convolutions raced: the one step of kernels_cpu/separable against the two
// steps of our own algorithms and of oneDNN, in turns.
//
//   micro_separable [--rounds=20] [--batch=1,16] [--layout=nhwc] [PROBLEM>K ...]
//
// PROBLEM is the depthwise convolution, of one image, and K the filters of the pointwise one; the
// default is MobileNetV2's pairs. A line each: the median times, and those of two steps over that
// of one. Each sample follows a run of its own that is not timed. All add biases. The one step has
// a ReLU6 in between and our two a ReLU; oneDNN computes none, so that it does least. Of its
// layouts, the faster one counts. A wrong result ends the program with 1.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "bench/micro/lab.h"
#include "conv/error.h"
#include "conv/optional/separable_device.h"
#include "conv/refusals.h"
#include "conv/registry.h"
#include "kernels_cpu/cpu.h"

namespace convlab::micro {
namespace {

struct Pair {
  std::string depthwise;
  std::int64_t filters = 1, count = 1;
};

struct Options {
  int rounds = 20;
  std::vector<std::int64_t> batches{1, 16};
  bool nhwc = false;
  std::vector<Pair> pairs;
};

std::vector<Pair> mobilenet_v2() {
  return {{"g32ic32ih112oc32kh3ph1", 16, 1},   {"g96ic96ih112oc96oh56kh3sh2ph1", 24, 1},
          {"g144ic144ih56oc144kh3ph1", 24, 1}, {"g144ic144ih56oc144oh28kh3sh2ph1", 32, 1},
          {"g192ic192ih28oc192kh3ph1", 32, 2}, {"g192ic192ih28oc192oh14kh3sh2ph1", 64, 1},
          {"g384ic384ih14oc384kh3ph1", 64, 3}, {"g384ic384ih14oc384kh3ph1", 96, 1},
          {"g576ic576ih14oc576kh3ph1", 96, 2}, {"g576ic576ih14oc576oh7kh3sh2ph1", 160, 1},
          {"g960ic960ih7oc960kh3ph1", 160, 2}, {"g960ic960ih7oc960kh3ph1", 320, 1}};
}

ConvProblem depthwise_of(const Pair& pair, std::int64_t batch, Layout layout) {
  ConvProblem p = parse_problem(pair.depthwise).problem;
  p.n = batch;
  p.x_layout = p.y_layout = layout;
  p.epilogue.bias = true;
  return p;
}

ConvProblem pointwise_of(const Pair& pair, const ConvProblem& depthwise) {
  ConvProblem p = depthwise;
  p.groups = p.r = p.s = p.stride_h = p.stride_w = 1;
  p.pad_h = p.pad_w = 0;
  p.c = depthwise.k;
  p.k = pair.filters;
  p.h = p.p = depthwise.p;
  p.w = p.q = depthwise.q;
  return p;
}

const AlgoRegistry& algos() {
  static const AlgoRegistry registry = [] {
    AlgoRegistry all;
    append_cpu_algos(all);
    return all;
  }();
  return registry;
}

// What all candidates of a pair read and write.
struct Data {
  Buffer x, depthwise_w, depthwise_bias, pointwise_w, pointwise_bias, middle, y;

  Data(const ConvProblem& depthwise, const ConvProblem& pointwise)
      : x(random_floats(depthwise.x_desc().elements())),
        depthwise_w(random_floats(depthwise.filter_elements())),
        depthwise_bias(random_floats(depthwise.k)),
        pointwise_w(random_floats(pointwise.filter_elements())),
        pointwise_bias(random_floats(pointwise.k)),
        middle(random_floats(pointwise.x_desc().elements())),
        y(random_floats(pointwise.y_desc().elements())) {}
};

struct Candidate {
  std::string name;
  std::function<void()> run;
  std::vector<double> ms = {};

  double median() const {
    std::vector<double> sorted = ms;
    std::nth_element(sorted.begin(), sorted.begin() + std::ptrdiff_t(sorted.size() / 2),
                     sorted.end());
    return sorted[sorted.size() / 2];
  }
  void sample(int runs) {
    run();
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < runs; ++i) run();
    const std::chrono::duration<double, std::milli> spent =
        std::chrono::steady_clock::now() - start;
    ms.push_back(spent.count() / runs);
  }
};

std::function<void()> convolution(const std::string& id, const ConvProblem& problem,
                                  const Buffer& x, const Buffer& w, const Buffer& bias,
                                  Buffer& out) {
  const ConvAlgo& algo = algos().get(DeviceKind::cpu, id);
  if (const auto refusal = algo.refuse(problem, *lab().device))
    throw InputError(fmt::format("{} {}", id, refusal->reason()));
  struct State {
    std::unique_ptr<ConvPlan> plan;
    Buffer packed, workspace;
    ConvArgs args;
  };
  const auto state = std::make_shared<State>();
  state->plan = algo.plan(problem, algo.configs(problem, *lab().device).front(), *lab().device);
  state->packed = lab().device->allocate(state->plan->packed_filter_bytes());
  state->workspace = lab().device->allocate(state->plan->workspace_bytes());
  state->args.x = x.data();
  state->args.w = w.data();
  state->args.bias = bias.data();
  state->args.out = out.data();
  if (state->plan->packed_filter_bytes() > 0) {
    state->plan->pack_filter(w.span(), state->packed.span(), *lab().stream);
    state->args.w = state->packed.data();
  }
  return [state] { state->plan->run(state->args, state->workspace.span(), *lab().stream); };
}

Candidate two_steps(const std::string& first, const std::string& second, ConvProblem depthwise,
                    const ConvProblem& pointwise, Data& data) {
  if (first == "depthwise") depthwise.epilogue.activation = ActivationKind::relu;
  const auto one =
      convolution(first, depthwise, data.x, data.depthwise_w, data.depthwise_bias, data.middle);
  const auto two =
      convolution(second, pointwise, data.middle, data.pointwise_w, data.pointwise_bias, data.y);
  return {fmt::format("{} and {}", first, second), [one, two] {
            one();
            two();
          }};
}

Candidate one_step(ConvProblem depthwise, const ConvProblem& pointwise, ActivationKind activation,
                   Data& data) {
  depthwise.epilogue.activation = activation;
  auto& device = dynamic_cast<SeparableDevice&>(*lab().device);
  const SeparableProblem problem{depthwise, pointwise};
  if (const auto refusal = device.refuse(problem))
    throw InputError(fmt::format("one step {}", refusal->reason()));
  const std::shared_ptr<SeparablePlan> plan = device.plan(problem);
  const auto packed = std::make_shared<Buffer>(lab().device->allocate(plan->packed_filter_bytes()));
  const auto workspace = std::make_shared<Buffer>(lab().device->allocate(plan->workspace_bytes()));
  plan->pack_filters(data.depthwise_w.span(), data.pointwise_w.span(), packed->span(),
                     *lab().stream);
  const SeparableArgs args{.x = data.x.data(),
                           .packed = packed->data(),
                           .depthwise_bias = data.depthwise_bias.data(),
                           .pointwise_bias = data.pointwise_bias.data(),
                           .out = data.y.data()};
  // `keep`: the arguments only point to the filters.
  return {"one step", [=, keep = packed] { plan->run(args, workspace->span(), *lab().stream); }};
}

// The largest difference over the largest value.
double difference(const std::vector<float>& a, const Buffer& b) {
  double most = 0, scale = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    most = std::max(most, std::abs(double(a[i]) - double(b.as<float>()[i])));
    scale = std::max(scale, std::abs(double(a[i])));
  }
  return most / scale;
}

struct Times {
  double onednn = 0, own = 0, fused = 0;
};

Times race(const Pair& pair, std::int64_t batch, const Options& options) {
  const Layout blocked = blocked_layout(lab().device->info());
  const Layout layout = options.nhwc ? Layout::nhwc : blocked;
  const ConvProblem depthwise = depthwise_of(pair, batch, layout);
  const ConvProblem pointwise = pointwise_of(pair, depthwise);
  const ConvProblem blocked_depthwise = depthwise_of(pair, batch, blocked);
  Data data(blocked_depthwise, pointwise_of(pair, blocked_depthwise));
  // With a ReLU in between, which our two steps have, both results are the same.
  std::vector<Candidate> candidates;
  if (!options.nhwc)
    candidates.push_back(two_steps("depthwise", "implicit_gemm", depthwise, pointwise, data));
  if (!options.nhwc) {
    candidates.back().run();
    const std::vector<float> expected(data.y.as<float>(),
                                      data.y.as<float>() + pointwise.y_desc().elements());
    one_step(depthwise, pointwise, ActivationKind::relu, data).run();
    if (const double error = difference(expected, data.y); !(error < 1e-5))
      throw Error(fmt::format("one step is wrong by {}", error));
  }
  const std::size_t fused = candidates.size();
  candidates.push_back(one_step(depthwise, pointwise, ActivationKind::relu6, data));
  for (const Layout peer : {blocked, Layout::nhwc}) {
    const ConvProblem first = depthwise_of(pair, batch, peer);
    try {
      candidates.push_back(
          two_steps("onednn.direct", "onednn.direct", first, pointwise_of(pair, first), data));
    } catch (const InputError&) {  // it does not take this layout, or is not there
    }
  }
  candidates[fused].sample(1);
  const int runs = std::clamp(int(2 / candidates[fused].ms[0]), 1, 50);
  candidates[fused].ms.clear();
  for (int round = 0; round < options.rounds; ++round)
    for (Candidate& c : candidates) c.sample(runs);
  Times times;
  times.fused = candidates[fused].median();
  if (fused > 0) times.own = candidates[0].median();
  for (std::size_t i = fused + 1; i < candidates.size(); ++i)
    if (const double ms = candidates[i].median(); times.onednn == 0 || ms < times.onednn)
      times.onednn = ms;
  return times;
}

std::string line(const std::string& name, const Times& t) {
  return fmt::format("{:44} {:9.4f} {:9.4f} {:9.4f}   {:6.2f} {:6.2f}", name, t.onednn, t.own,
                     t.fused, t.onednn / t.fused, t.own / t.fused);
}

void race_all(const Options& options) {
  for (const std::int64_t batch : options.batches) {
    fmt::print("batch {}, {} threads, {}\n{:44} {:>9} {:>9} {:>9}   {:>6} {:>6}\n", batch,
               lab().device->info().threads, options.nhwc ? "nhwc" : "blocked", "ms", "onednn",
               "own", "one step", "onednn", "own");
    Times all;
    for (const Pair& pair : options.pairs) {
      const Times t = race(pair, batch, options);
      fmt::print("{}\n",
                 line(fmt::format("{}>{}*{}", pair.depthwise, pair.filters, pair.count), t));
      std::fflush(stdout);
      all.onednn += double(pair.count) * t.onednn;
      all.own += double(pair.count) * t.own;
      all.fused += double(pair.count) * t.fused;
    }
    fmt::print("{}\n", line("all", all));
  }
}

Options options_of(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word.starts_with("--rounds=")) {
      options.rounds = std::stoi(word.substr(9));
    } else if (word.starts_with("--batch=")) {
      options.batches.clear();
      std::istringstream numbers(word.substr(8));
      for (std::string number; std::getline(numbers, number, ',');)
        options.batches.push_back(std::stoll(number));
    } else if (word == "--layout=nhwc") {
      options.nhwc = true;
    } else if (const std::size_t at = word.find('>'); at != std::string::npos) {
      options.pairs.push_back({word.substr(0, at), std::stoll(word.substr(at + 1)), 1});
    } else {
      throw InputError(
          fmt::format("{}: expected --rounds=N, --batch=N,..., --layout=nhwc or "
                      "PROBLEM>K",
                      word));
    }
  }
  if (options.pairs.empty()) options.pairs = mobilenet_v2();
  return options;
}

}  // namespace
}  // namespace convlab::micro

int main(int argc, char** argv) {
  using namespace convlab;
  micro::prepare(argv);
  try {
    micro::race_all(micro::options_of(argc, argv));
  } catch (const InputError& error) {
    fmt::print(stderr, "micro_separable: {}\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    fmt::print(stderr, "micro_separable: {}\n", error.what());
    return 1;
  }
  return 0;
}
