#include "nets/plan/choose.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>

#include "conv/error.h"
#include "conv/refusals.h"
#include "conv/types/math_type.h"
#include "kernels_cpu/cpu.h"
#include "nets/tensor.h"
#include "nets/zoo/zoo.h"
#include "tests/cpu_backed_device.h"
#include "tests/nets/net_lab.h"

namespace convlab::nets {
namespace {

// Accepts the problems that `takes` admits; needs `workspace` bytes per image, and `packed` times
// the filter's bytes.
struct Behaviour {
  std::string id;
  std::function<bool(const ConvProblem&)> takes = [](const ConvProblem&) { return true; };
  std::int64_t workspace = 0;
  bool deterministic = true;
  double efficiency = 0.5;
  DeviceKind device = DeviceKind::cpu;
  Config config{};
  std::int64_t packed = 0;
};

class FakeAlgo : public ConvAlgo {
 public:
  explicit FakeAlgo(Behaviour behaviour) : behaviour_(std::move(behaviour)) {
    info_.id = behaviour_.id;
    info_.device = behaviour_.device;
  }
  const AlgoInfo& info() const noexcept override { return info_; }
  std::optional<Refusal> refuse(const ConvProblem& p, Device&) const override {
    if (behaviour_.takes(p)) return {};
    return Refusal{Field::device, {}, "not to its taste"};
  }
  std::vector<Config> configs(const ConvProblem&, Device&) const override {
    return {behaviour_.config};
  }
  bool deterministic(const ConvProblem&, const Config&) const override {
    return behaviour_.deterministic;
  }
  WorkEstimate work(const ConvProblem& p, const Config&, Device&) const override {
    return {{{.name = "loops", .flops = p.flops(), .efficiency = behaviour_.efficiency}}};
  }
  std::unique_ptr<ConvPlan> plan(const ConvProblem& p, const Config&, Device&) const override {
    class Plan : public ConvPlan {
     public:
      Plan(std::int64_t bytes, std::int64_t packed) : bytes_(bytes), packed_(packed) {}
      std::size_t workspace_bytes() const noexcept override { return std::size_t(bytes_); }
      std::size_t packed_filter_bytes() const noexcept override { return std::size_t(packed_); }
      void run(const ConvArgs&, Workspace, Stream&) const override {}

     private:
      std::int64_t bytes_, packed_;
    };
    return std::make_unique<Plan>(behaviour_.workspace * p.n, behaviour_.packed * p.filter_bytes());
  }

 private:
  Behaviour behaviour_;
  AlgoInfo info_;
};

AlgoRegistry registry_of(const std::vector<Behaviour>& behaviours) {
  AlgoRegistry registry;
  for (const Behaviour& b : behaviours) registry.append(std::make_unique<FakeAlgo>(b));
  return registry;
}

// A card, as far as planning can tell.
class FakeCard : public CpuBackedDevice {
 public:
  FakeCard() {
    info_.kind = DeviceKind::cuda;
    info_.peak_f32_flops = info_.peak_f64_flops = 1e13;
    info_.peak_bandwidth = 1e12;
  }
};

bool is_plain(const ConvProblem& p) {
  return p.x_layout == Layout::nchw && p.y_layout == Layout::nchw;
}

// input > a > b, two convolutions of 16 channels at 32x32.
Graph two_convs(std::int64_t batch) {
  Graph graph("two");
  const NodeId x = graph.add("input", Input{{batch, 16, 32, 32}}, {});
  const NodeId a = graph.add("a", Conv{.filters = 16, .kernel = 3, .pad = 1}, {x});
  graph.add("b", Conv{.filters = 16, .kernel = 5, .pad = 2}, {a});
  return graph;
}

std::string error_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const InputError& e) {
    return e.what();
  }
  return "";
}

class Choose : public testing::Test {
 protected:
  Choose()
      : path_(std::filesystem::temp_directory_path() /
              ("convlab_choose_" + std::to_string(::getpid()) + ".db")) {}
  ~Choose() override { std::filesystem::remove(path_); }

  Store& store() {
    if (!store_) store_.emplace(path_);
    return *store_;
  }
  // Stores a measurement of a layer, in one layout.
  void measured(const Graph& graph, const std::string& layer, Pass pass, const ConvAlgo& algo,
                Layout layout, double ms, const std::function<void(Candidate&)>& change = {}) {
    for (const Node& node : graph.nodes())
      if (node.name == layer) {
        ConvProblem problem = graph.conv_problem(node);
        problem.pass = pass;
        problem.x_layout = problem.y_layout = layout;
        Candidate c;
        c.algo = algo.info().id;
        c.version = algo.info().version;
        c.x_layout = c.y_layout = layout;
        c.threads = device_->info().threads;
        c.ms = ms;
        c.rel_error = 1e-7;
        c.process_ms.assign(5, ms);
        c.process_pack_ms.assign(5, 0);
        if (change) change(c);
        store().record(problem, device_->info(), algo.info(), c);
      }
  }
  Chosen choose(const Graph& graph, const NetAlgos& algos, const ChooseOptions& options) {
    return choose_plan(graph, options, algos, *device_, store_ ? &*store_ : nullptr);
  }
  static const PassPlan& pass_of(const Chosen& chosen, const std::string& layer, Pass pass) {
    for (const StepPlan& step : chosen.plan.steps)
      if (step.layer == layer) return step.passes[std::size_t(pass)].value();
    throw std::out_of_range(layer);
  }

  std::filesystem::path path_;
  std::unique_ptr<Device> device_ = make_cpu_device();
  std::optional<Store> store_;
  const ChooseOptions training_, inference_{.mode = Mode::inference};
};

TEST_F(Choose, PlansEveryNetOptimally) {
  for (const std::string& name : net_names())
    for (const Mode mode : {Mode::training, Mode::inference}) {
      const Graph graph = make_net(name, 4);
      const Chosen chosen = choose(graph, cpu_algos(), {.mode = mode});
      EXPECT_TRUE(chosen.optimal) << name;
      EXPECT_GT(chosen.plan.ms(), 0) << name;
      require_plan_fits(chosen.plan, graph, device_->info());
    }
}

TEST_F(Choose, IsNoWorseThanOneLayout) {
  AlgoRegistry registry;
  append_cpu_algos(registry);
  for (const std::string name : {"resnet20", "googlenet"})
    for (const Mode mode : {Mode::training, Mode::inference}) {
      const Graph graph = make_net(name, 4);
      ChooseOptions options{.mode = mode};
      const Chosen chosen = choose(graph, registry, options);
      for (const Layout layout : {Layout::nchw, Layout::nhwc}) {
        options.layout = layout;
        EXPECT_LE(chosen.plan.ms(), choose(graph, registry, options).plan.ms() * 1.000001)
            << name << " " << to_string(layout);
      }
    }
}

// The rival is another algorithm for the pointwise convolution.
TEST_F(Choose, JoinsSeparableConvolutionsWhereThatIsFaster) {
  // Room for the buffers of any number of threads.
  const ChooseOptions options{.mode = Mode::inference, .workspace_max = std::int64_t{1} << 30};
  Graph graph("separable");
  const NodeId x = graph.add("input", Input{{2, 32, 8, 8}}, {});
  const NodeId y = graph.add("dw", Conv{.filters = 32, .kernel = 3, .pad = 1, .groups = 32}, {x});
  graph.add("pw", Conv{.filters = 32}, {y});
  const Layout layout = blocked_layout(device_->info());
  const auto measure = [&](const std::string& layer, const std::string& id, double ms) {
    const ConvAlgo& algo = cpu_algos().conv.get(DeviceKind::cpu, id);
    measured(graph, layer, Pass::forward, algo, layout, ms, [&](Candidate& c) {
      ConvProblem problem = graph.conv_problem(graph.nodes()[layer == "dw" ? 1 : 2]);
      problem.x_layout = problem.y_layout = layout;
      const std::vector<Config> configs = algo.configs(problem, *device_);
      c.config = *std::find_if(configs.begin(), configs.end(), [](const Config& config) {
        return math_type(config) == MathType::f32;
      });
    });
  };
  measure("dw", "depthwise", 0.010);
  measure("pw", "direct", 0.020);
  // The time of one half is not known.
  EXPECT_EQ(pass_of(choose(graph, cpu_algos(), options), "pw", Pass::forward).algo, "direct");
  measure("pw", "implicit_gemm", 0.020);
  const PassPlan joined = pass_of(choose(graph, cpu_algos(), options), "pw", Pass::forward);
  EXPECT_EQ(joined.algo, "separable");
  EXPECT_LT(joined.ms, 0.030);
  EXPECT_GE(joined.ms, 0.9 * 0.030);
  measure("pw", "direct", 0.010);
  const Chosen apart = choose(graph, cpu_algos(), options);
  EXPECT_EQ(pass_of(apart, "dw", Pass::forward).algo, "depthwise");
  EXPECT_EQ(pass_of(apart, "pw", Pass::forward).algo, "direct");
}

TEST_F(Choose, PlansThePassesThatAreNeeded) {
  const AlgoRegistry registry = registry_of({{.id = "any"}});
  const Graph graph = two_convs(4);
  const auto passes = [&](const ChooseOptions& options, std::size_t step) {
    std::string text;
    const Chosen chosen = choose(graph, registry, options);
    for (const auto& pass : chosen.plan.steps[step].passes) text += pass ? 'x' : '-';
    return text;
  };
  EXPECT_EQ(passes(inference_, 1) + passes(inference_, 2), "x--x--");
  EXPECT_EQ(passes(training_, 1) + passes(training_, 2), "x-xxxx");
  ChooseOptions down = training_;
  down.input_gradient = true;
  EXPECT_EQ(passes(down, 1) + passes(down, 2), "xxxxxx");
}

// Each convolution alone is fastest in another layout; converting between them may or may not pay.
TEST_F(Choose, ConvertsWhereThatIsWorthIt) {
  const AlgoRegistry registry = registry_of({{.id = "any"}});
  const ConvAlgo& any = *registry.all()[0];
  const Graph graph = two_convs(4);
  const auto fill = [&](double slow) {
    for (const Pass pass : all_passes) {
      measured(graph, "a", pass, any, Layout::nchw, 1);
      measured(graph, "a", pass, any, Layout::nhwc, slow);
      measured(graph, "b", pass, any, Layout::nchw, slow);
      measured(graph, "b", pass, any, Layout::nhwc, 1);
    }
  };
  for (const ChooseOptions& options : {training_, inference_}) {
    fill(1 + 1e-9);
    NetPlan plan = choose(graph, registry, options).plan;
    EXPECT_EQ(plan.steps[1].y_layout, plan.steps[2].x_layout);
    EXPECT_EQ(plan.steps[2].convert_ms, 0);

    fill(1e6);
    plan = choose(graph, registry, options).plan;
    EXPECT_EQ(plan.steps[1].y_layout, Layout::nchw);
    EXPECT_EQ(plan.steps[2].x_layout, Layout::nhwc);
    EXPECT_GT(plan.steps[2].convert_ms, 0);
    EXPECT_EQ(plan.steps[1].convert_ms, 0);
  }
}

// In training the gradient is converted back as well.
TEST_F(Choose, CountsBothWaysOfAConversion) {
  const AlgoRegistry apart =
      registry_of({{.id = "any", .takes = [](const ConvProblem& p) {
                      return p.x_layout == p.y_layout && (p.r == 3) == (p.x_layout == Layout::nchw);
                    }}});
  const Graph graph = two_convs(4);
  const double one_way = choose(graph, apart, inference_).plan.steps[2].convert_ms;
  ASSERT_GT(one_way, 0);
  EXPECT_DOUBLE_EQ(choose(graph, apart, training_).plan.steps[2].convert_ms, 2 * one_way);

  const AlgoRegistry registry = registry_of({{.id = "any"}});
  const ConvAlgo& any = *registry.all()[0];
  for (const double factor : {1.5, 2.5}) {  // the time that nhwc would save in b
    for (const Pass pass : all_passes) {
      const bool forward = pass == Pass::forward;
      measured(graph, "a", pass, any, Layout::nchw, 1);
      measured(graph, "b", pass, any, Layout::nchw, forward ? 1 + factor * one_way : 1);
      measured(graph, "b", pass, any, Layout::nhwc, 1);
    }
    const Chosen chosen = choose(graph, registry, training_);
    EXPECT_EQ(chosen.plan.steps[1].y_layout, Layout::nchw);
    EXPECT_EQ(chosen.plan.steps[2].x_layout, factor < 2 ? Layout::nchw : Layout::nhwc);
  }
}

// Where layouts are equally fast, a net works in the one in which its input is given, unless its
// larger output is read in another.
TEST_F(Choose, CountsTheConversionsOfInputAndOutput) {
  const AlgoRegistry registry = registry_of({{.id = "any"}});
  const ConvAlgo& any = *registry.all()[0];
  Graph graph("growing");
  input(graph, {4, 3, 8, 8}).conv("a", {.filters = 4}).conv("b", {.filters = 64});
  for (const char* const layer : {"a", "b"})
    for (const Pass pass : all_passes)
      for (const Layout layout : {Layout::nchw, Layout::nhwc})
        measured(graph, layer, pass, any, layout, 1);
  for (ChooseOptions options : {training_, inference_})
    for (const Layout in : {Layout::nchw, Layout::nhwc})
      for (const auto out :
           {std::optional<Layout>(), std::optional(Layout::nchw), std::optional(Layout::nhwc)}) {
        options.input_layout = in;
        options.output_layout = out;
        const NetPlan plan = choose(graph, registry, options).plan;
        EXPECT_EQ(plan.steps[0].y_layout, in);
        for (const std::size_t step : {1, 2}) {
          EXPECT_EQ(plan.steps[step].x_layout, out.value_or(in));
          EXPECT_EQ(plan.steps[step].y_layout, out.value_or(in));
        }
      }
  ChooseOptions options = inference_;
  options.input_layout = Layout::nchw8c;
  EXPECT_THROW(choose(graph, registry, options), InputError);
}

// Three readers of one value need it converted. It is converted once, and each reader's gradient is
// converted back.
TEST_F(Choose, ConvertsOnceForAllReaders) {
  Graph graph("fork");
  const NodeId x = graph.add("input", Input{{4, 16, 32, 32}}, {});
  const NodeId value = graph.add("value", Conv{.filters = 16}, {x});
  std::vector<NodeId> branches;
  for (const char* name : {"a", "b", "c"})
    branches.push_back(graph.add(name, Conv{.filters = 16, .kernel = 3, .pad = 1}, {value}));
  graph.add("concat", Concat{}, branches);
  const AlgoRegistry registry =
      registry_of({{.id = "any", .takes = [](const ConvProblem& p) {
                      return p.x_layout == p.y_layout && (p.r == 1) == (p.x_layout == Layout::nchw);
                    }}});
  const std::vector<StepPlan> forward = choose(graph, registry, inference_).plan.steps;
  EXPECT_GT(forward[2].convert_ms, 0);
  for (const std::size_t other : {1, 3, 4}) EXPECT_EQ(forward[other].convert_ms, 0);
  const std::vector<StepPlan> both = choose(graph, registry, training_).plan.steps;
  EXPECT_GT(both[3].convert_ms, forward[2].convert_ms);  // the converted gradient is also added
  EXPECT_DOUBLE_EQ(both[4].convert_ms, both[3].convert_ms);
  EXPECT_DOUBLE_EQ(both[2].convert_ms, both[3].convert_ms + forward[2].convert_ms);
}

TEST_F(Choose, PrefersWhatIsMeasured) {
  const AlgoRegistry registry =
      registry_of({{.id = "fast", .efficiency = 1}, {.id = "slow", .efficiency = 0.01}});
  const ConvAlgo& slow = *registry.all()[1];
  const Graph graph = two_convs(4);
  measured(graph, "a", Pass::forward, slow, Layout::nhwc, 7);
  // A row that was never run is ignored.
  measured(graph, "b", Pass::forward, slow, Layout::nhwc, 1e-9, [](Candidate& c) {
    c.status = Status::dropped;
    c.predicted = true;
  });
  const Chosen chosen = choose(graph, registry, inference_);
  EXPECT_EQ(pass_of(chosen, "a", Pass::forward), (PassPlan{"slow", {}, 0, 7, true}));
  EXPECT_EQ(pass_of(chosen, "b", Pass::forward).algo, "fast");
  EXPECT_FALSE(pass_of(chosen, "b", Pass::forward).measured);
  EXPECT_EQ(chosen.untuned, std::vector<std::string>{"b fwd"});
}

TEST_F(Choose, UsesAnOpenRaceAsAPrediction) {
  const AlgoRegistry registry = registry_of({{.id = "fast"}, {.id = "slow"}});
  const ConvAlgo& slow = *registry.all()[1];
  const Graph graph = two_convs(4);
  const auto one_process = [](Candidate& c) {
    c.process_ms.resize(1);
    c.process_pack_ms.resize(1);
  };
  measured(graph, "a", Pass::forward, slow, Layout::nchw, 1e-9, one_process);
  const Chosen chosen = choose(graph, registry, inference_);
  EXPECT_EQ(pass_of(chosen, "a", Pass::forward).algo, "slow");
  EXPECT_EQ(chosen.untuned, (std::vector<std::string>{"a fwd", "b fwd"}));
}

TEST_F(Choose, UsesWhatWasDroppedButNotWhatFailed) {
  const AlgoRegistry registry = registry_of({{.id = "fast"}, {.id = "slow"}});
  const Graph graph = two_convs(4);
  const auto status = [](Status s, double rel_error) {
    return [=](Candidate& c) {
      c.status = s;
      c.reason = "for a reason";
      c.rel_error = rel_error;
    };
  };
  measured(graph, "a", Pass::forward, *registry.all()[0], Layout::nchw, 1,
           status(Status::failed, 0));
  measured(graph, "a", Pass::forward, *registry.all()[0], Layout::nhwc, 1, status(Status::ok, 0.1));
  measured(graph, "a", Pass::forward, *registry.all()[1], Layout::nchw, 5,
           status(Status::dropped, 1e-7));
  const Chosen chosen = choose(graph, registry, inference_);
  EXPECT_EQ(pass_of(chosen, "a", Pass::forward), (PassPlan{"slow", {}, 0, 5, true}));
  ChooseOptions lax = inference_;
  lax.max_error = 1;
  EXPECT_EQ(pass_of(choose(graph, registry, lax), "a", Pass::forward).algo, "fast");
}

// A dropped candidate lost the race, even if its few samples were faster.
TEST_F(Choose, BelievesTheRaceNotTheSamplesOfWhoWasDropped) {
  const AlgoRegistry registry = registry_of({{.id = "winner"}, {.id = "loser"}});
  const Graph graph = two_convs(4);
  const auto dropped = [](Candidate& c) { c.status = Status::dropped; };
  measured(graph, "a", Pass::forward, *registry.all()[0], Layout::nchw, 10);
  measured(graph, "a", Pass::forward, *registry.all()[1], Layout::nchw, 6, dropped);
  measured(graph, "a", Pass::forward, *registry.all()[1], Layout::nhwc, 6, dropped);
  ChooseOptions options = inference_;
  EXPECT_EQ(pass_of(choose(graph, registry, options), "a", Pass::forward),
            (PassPlan{"winner", {}, 0, 10, true}));
  options.layout = Layout::nhwc;
  const PassPlan pass = pass_of(choose(graph, registry, options), "a", Pass::forward);
  EXPECT_EQ(pass.algo, "loser");
  EXPECT_GE(pass.ms, 10);
}

// A layout in which one pass is missing is left out, unless no layout remains.
TEST_F(Choose, MixesMeasuredAndPredictedOnlyWhereItMust) {
  const AlgoRegistry registry = registry_of({{.id = "any"}});
  const ConvAlgo& any = *registry.all()[0];
  const Graph graph = two_convs(4);
  measured(graph, "a", Pass::forward, any, Layout::nchw, 1e-9);
  measured(graph, "a", Pass::backward_filter, any, Layout::nhwc, 9);
  Chosen chosen = choose(graph, registry, training_);
  EXPECT_NE(pass_of(chosen, "a", Pass::forward).measured,
            pass_of(chosen, "a", Pass::backward_filter).measured);
  measured(graph, "a", Pass::forward, any, Layout::nhwc, 9);
  chosen = choose(graph, registry, training_);
  EXPECT_TRUE(pass_of(chosen, "a", Pass::forward).measured);
  EXPECT_TRUE(pass_of(chosen, "a", Pass::backward_filter).measured);
  EXPECT_EQ(chosen.plan.steps[1].x_layout, Layout::nhwc);
}

TEST_F(Choose, PacksInTrainingOnly) {
  const AlgoRegistry registry = registry_of({{.id = "packs"}, {.id = "plain"}});
  const Graph graph = two_convs(4);
  for (const Pass pass : all_passes) {
    measured(graph, "a", pass, *registry.all()[0], Layout::nchw, 5,
             [](Candidate& c) { c.pack_ms = 2; });
    measured(graph, "a", pass, *registry.all()[1], Layout::nchw, 6);
  }
  EXPECT_EQ(pass_of(choose(graph, registry, inference_), "a", Pass::forward).algo, "packs");
  const Chosen chosen = choose(graph, registry, training_);
  EXPECT_EQ(pass_of(chosen, "a", Pass::forward).algo, "plain");
  EXPECT_EQ(pass_of(chosen, "a", Pass::backward_filter).ms, 5);
}

TEST_F(Choose, SplitsTheBatchUnderALimit) {
  const AlgoRegistry registry =
      registry_of({{.id = "big", .workspace = 1000}, {.id = "small", .efficiency = 0.001}});
  const Graph graph = two_convs(12);
  const auto big = [](std::int64_t images) {
    return [=](Candidate& c) { c.workspace_bytes = 1000 * images; };
  };
  measured(graph, "a", Pass::forward, *registry.all()[0], Layout::nchw, 12, big(12));
  measured(graph, "a", Pass::forward, *registry.all()[1], Layout::nchw, 100);
  ChooseOptions options = inference_;
  const auto plan_under = [&](std::int64_t limit) {
    options.workspace_max = limit;
    return pass_of(choose(graph, registry, options), "a", Pass::forward);
  };
  EXPECT_EQ(plan_under(12000), (PassPlan{"big", {}, 0, 12, true}));
  const PassPlan halves = plan_under(11999);
  EXPECT_EQ(halves.algo, "big");
  EXPECT_EQ(halves.images, 6);
  EXPECT_FALSE(halves.measured);
  // As the whole batch, apart from loop overhead: its share is that of the predictions.
  const auto predicted = [&](std::int64_t batch) {
    ChooseOptions alone = inference_;
    alone.algos = {"big"};
    const Chosen chosen = choose_plan(two_convs(batch), alone, registry, *device_, nullptr);
    return pass_of(chosen, "a", Pass::forward).ms;
  };
  EXPECT_NEAR(halves.ms, 12 * 2 * predicted(6) / predicted(12), 1e-9);
  EXPECT_EQ(plan_under(5999).images, 3);
  EXPECT_EQ(plan_under(2999).images, 1);
  EXPECT_EQ(plan_under(999), (PassPlan{"small", {}, 0, 100, true}));

  // Measured times of half a batch.
  measured(two_convs(6), "a", Pass::forward, *registry.all()[0], Layout::nchw, 40, big(6));
  EXPECT_EQ(plan_under(11999), (PassPlan{"big", {}, 6, 80, true}));
  measured(two_convs(6), "a", Pass::forward, *registry.all()[0], Layout::nchw, 60, big(6));
  EXPECT_EQ(plan_under(11999).algo, "small");
}

// Filters of 9216 and 25600 bytes, packed four times that.
TEST_F(Choose, InferenceKeepsPackedFiltersWithinTheLimit) {
  const AlgoRegistry registry =
      registry_of({{.id = "packs", .packed = 4}, {.id = "plain", .efficiency = 0.001}});
  const Graph graph = two_convs(1);
  const auto remember = [&](double pack_ms) {
    for (const char* layer : {"a", "b"}) {
      measured(graph, layer, Pass::forward, *registry.all()[0], Layout::nchw, 1,
               [=](Candidate& c) { c.pack_ms = pack_ms; });
      measured(graph, layer, Pass::forward, *registry.all()[1], Layout::nchw, 5);
    }
  };
  ChooseOptions options = inference_;
  const auto chosen_under = [&](std::int64_t limit) {
    options.workspace_max = limit;
    const Chosen chosen = choose(graph, registry, options);
    std::string text;
    for (const char* layer : {"a", "b"}) {
      const PassPlan& pass = pass_of(chosen, layer, Pass::forward);
      text += pass.algo + (pass.packs_each_run ? " each run " : " ");
    }
    return text;
  };
  remember(10);
  EXPECT_EQ(chosen_under(0), "plain plain ");
  EXPECT_EQ(chosen_under(3 * 9216), "packs plain ");
  EXPECT_EQ(chosen_under(3 * 9216 + 3 * 25600), "packs packs ");
  remember(0.5);
  EXPECT_EQ(chosen_under(4 * 25600), "packs each run packs each run ");
  EXPECT_EQ(chosen_under(3 * 9216), "packs plain ");
  options.workspace_max.reset();
  EXPECT_FALSE(pass_of(choose(graph, registry, options), "b", Pass::forward).packs_each_run);
}

// The two convolutions' weights and activations are so small that the limit takes its minimum.
TEST_F(Choose, TrainingLimitsTheWorkspaceByItself) {
  constexpr std::int64_t usual = 96 << 20;
  const auto taken = [&](const std::vector<Behaviour>& offered) {
    return pass_of(choose(two_convs(1), registry_of(offered), training_), "b", Pass::forward).algo;
  };
  const Behaviour plain{.id = "plain", .efficiency = 0.001};
  EXPECT_EQ(taken({{.id = "big", .workspace = usual}, plain}), "big");
  EXPECT_EQ(taken({{.id = "big", .workspace = usual + 1}, plain}), "plain");
  EXPECT_EQ(taken({{.id = "big", .workspace = usual + 1}}), "big");  // nothing else is available
}

TEST_F(Choose, TrainingCountsPackedFiltersAsWorkspace) {
  const AlgoRegistry registry = registry_of(
      {{.id = "packs", .workspace = 1000, .packed = 4}, {.id = "plain", .efficiency = 0.001}});
  const Graph graph = two_convs(1);
  ChooseOptions options = training_;
  options.workspace_max = 4 * 25600 + 1000;
  EXPECT_EQ(pass_of(choose(graph, registry, options), "b", Pass::forward).algo, "packs");
  options.workspace_max = 4 * 25600 + 999;
  EXPECT_EQ(pass_of(choose(graph, registry, options), "b", Pass::forward).algo, "plain");
}

// backward_filter accumulates over the parts, which some algorithms cannot.
TEST_F(Choose, SplitsBackwardFilterOnlyForThoseThatAdd) {
  const AlgoRegistry registry =
      registry_of({{.id = "overwrites",
                    .takes = [](const ConvProblem& p) { return !p.accumulate; },
                    .workspace = 1000,
                    .efficiency = 1},
                   {.id = "adds", .workspace = 1000, .efficiency = 0.5}});
  ChooseOptions options = training_;
  const Graph graph = two_convs(8);
  EXPECT_EQ(pass_of(choose(graph, registry, options), "a", Pass::backward_filter).algo,
            "overwrites");
  options.workspace_max = 4000;
  const Chosen chosen = choose(graph, registry, options);
  EXPECT_EQ(pass_of(chosen, "a", Pass::forward).algo, "overwrites");
  EXPECT_EQ(pass_of(chosen, "a", Pass::backward_filter).algo, "adds");
  EXPECT_EQ(pass_of(chosen, "a", Pass::backward_filter).images, 4);
}

TEST_F(Choose, SaysWhichWorkspaceWouldDo) {
  const AlgoRegistry registry = registry_of(
      {{.id = "big", .takes = [](const ConvProblem& p) { return p.r == 5; }, .workspace = 1000},
       {.id = "huge", .workspace = 3000}});
  ChooseOptions options = training_;
  options.workspace_max = 999;
  const Graph graph = two_convs(8);
  EXPECT_EQ(error_of([&] { choose(graph, registry, options); }),
            "net two, layer a: no algorithm works within 999 bytes of workspace: expected 3000 or "
            "more, which layer a needs");
  options.workspace_max = 2999;
  EXPECT_NE(error_of([&] { choose(graph, registry, options); }), "");
  options.workspace_max = 3000;
  EXPECT_EQ(pass_of(choose(graph, registry, options), "a", Pass::forward).images, 1);
}

TEST_F(Choose, KnowsTheLayoutsOfACardAndTakesNoTF32Unasked) {
  const AlgoRegistry registry = registry_of(
      {{.id = "rough", .efficiency = 8, .device = DeviceKind::cuda, .config = {{"math", "tf32"}}},
       {.id = "strict", .device = DeviceKind::cuda, .config = {{"math", "f32"}}}});
  FakeCard card;
  ChooseOptions options = training_;
  const Graph graph = googlenet(4);
  Chosen chosen = choose_plan(graph, options, registry, card, nullptr);
  for (const StepPlan& step : chosen.plan.steps) {
    EXPECT_FALSE(is_blocked(step.x_layout) || is_blocked(step.y_layout)) << step.layer;
    for (const auto& pass : step.passes) EXPECT_TRUE(!pass || pass->algo == "strict");
  }
  options.max_error = 1e-2;
  chosen = choose_plan(graph, options, registry, card, nullptr);
  EXPECT_EQ(pass_of(chosen, "conv1.conv", Pass::forward).algo, "rough");
}

TEST_F(Choose, RefusesLimitsThatMakeNoSense) {
  AlgoRegistry registry;
  append_cpu_algos(registry);
  const Graph graph = two_convs(1);
  EXPECT_THROW(choose_plan(graph, {.max_error = std::nan("")}, registry, *device_, nullptr),
               InputError);
  EXPECT_THROW(choose_plan(graph, {.max_error = -1.0}, registry, *device_, nullptr), InputError);
  EXPECT_THROW(choose_plan(graph, {.workspace_max = -1}, registry, *device_, nullptr), InputError);
  EXPECT_THROW(choose_plan(Graph("empty"), {}, registry, *device_, nullptr), InputError);
}

TEST_F(Choose, KeepsToItsLimits) {
  const AlgoRegistry registry =
      registry_of({{.id = "loose", .deterministic = false, .efficiency = 1},
                   {.id = "plain", .takes = is_plain},
                   {.id = "split", .efficiency = 0.2, .config = {{"math", "bf16x6"}}},
                   {.id = "other", .efficiency = 0.1}});
  const Graph graph = two_convs(4);
  ChooseOptions options = training_;
  EXPECT_EQ(pass_of(choose(graph, registry, options), "a", Pass::forward).algo, "loose");
  options.maths = {MathType::bf16x6, MathType::tf32};
  EXPECT_EQ(pass_of(choose(graph, registry, options), "a", Pass::forward).algo, "split");
  options.maths = {MathType::f32};
  options.deterministic = true;
  Chosen chosen = choose(graph, registry, options);
  EXPECT_EQ(pass_of(chosen, "a", Pass::forward).algo, "plain");
  EXPECT_TRUE(chosen.plan.deterministic);
  options.exclude = {"plain"};
  EXPECT_EQ(pass_of(choose(graph, registry, options), "a", Pass::forward).algo, "other");
  options.exclude = {};
  options.layout = Layout::nhwc;
  chosen = choose(graph, registry, options);
  EXPECT_EQ(pass_of(chosen, "a", Pass::forward).algo, "other");
  EXPECT_EQ(chosen.plan.steps[0].y_layout, Layout::nchw);  // the input keeps its layout
  EXPECT_EQ(chosen.plan.steps[1].x_layout, Layout::nhwc);
  options.algos = {"plain"};
  EXPECT_EQ(error_of([&] { choose(graph, registry, options); }),
            "net two, layer a: no algorithm that is admitted takes "
            "mb4ic16ih32oc16oh32kh3ph1 in f32 in all of its passes: admit more algorithms, layouts "
            "or error");
  options.algos = {"plane"};
  EXPECT_NE(error_of([&] { choose(graph, registry, options); }).find("plain"), std::string::npos);
  options = training_;
  options.dtype = DType::f16;
  EXPECT_NE(error_of([&] { choose(graph, registry, options); }).find("f16"), std::string::npos);
}

}  // namespace
}  // namespace convlab::nets
