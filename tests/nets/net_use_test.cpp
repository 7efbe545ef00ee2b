// Around an iteration: valid plans, reported memory, how parameters start and change, what an
// observer sees, and inference after training.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <limits>
#include <set>

#include "conv/error.h"
#include "conv/refusals.h"
#include "conv/text/bytes.h"
#include "kernels_cpu/cpu.h"
#include "nets/net.h"
#include "nets/tensor.h"
#include "tests/cpu_backed_device.h"
#include "tests/nets/net_lab.h"

namespace convlab::nets {
namespace {

struct Training {
  std::unique_ptr<Device> device = make_cpu_device({2, ""});
  Graph graph;
  NetPlan plan;

  explicit Training(const std::string& net, DType dtype = DType::f64, std::int64_t batch = 4)
      : graph(small_net(net).make(batch)),
        plan(uniform_plan(graph, Mode::training, dtype, "im2col", Layout::nchw16c, *device)) {}
  // Zeros, as large as the value of a node.
  std::vector<std::byte> zeros(const Node& node) const {
    const Shape& s = node.shape;
    return std::vector<std::byte>(std::size_t(s.elements() * size_of(plan.dtype)));
  }
  std::vector<std::byte> input() const { return zeros(graph.nodes().front()); }
};

// ---- Plans ----

std::string error_of(const Training& t, const NetPlan& plan) {
  try {
    Net net(t.graph, plan, cpu_algos(), *t.device);
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

TEST(NetPlans, ThatDoNotFitAreRefusedInOneLine) {
  const Training t("residual");
  const auto expect = [&](auto change, const std::string& message) {
    NetPlan plan = t.plan;
    change(plan);
    const std::string error = error_of(t, plan);
    EXPECT_NE(error.find(message), std::string::npos) << error;
    EXPECT_EQ(error.find('\n'), std::string::npos);
    EXPECT_NE(error.find("residual"), std::string::npos) << error;
  };
  expect([](NetPlan& p) { p.net = "vgg16"; }, "it is for vgg16");
  expect([](NetPlan& p) { p.batch = 16; }, "it is for batch 16, not 4");
  expect([](NetPlan& p) { p.dtype = DType::f16; }, "nets run in f32, f64 or bf16, not f16");
  for (const std::int64_t images : {std::int64_t(-1), std::int64_t(5), std::int64_t(1) << 62})
    expect([images](NetPlan& p) { p.steps[1].passes[0]->images = images; },
           "images at a time: expected 0 to 4");
  expect([](NetPlan& p) { p.mode = Mode::inference; }, "inference has");
  expect([](NetPlan& p) { p.steps[2].layer = "conv7"; }, "step 2 is conv1.bn, the plan has conv7");
  expect([](NetPlan& p) { p.steps[0].y_layout = Layout::nchw8c; }, "the input is in nchw or nhwc");
  expect([](NetPlan& p) { p.steps[1].passes[0]->algo = "magic"; }, "layer conv1: ");
  expect([](NetPlan& p) { p.steps[3].passes[1].reset(); },
         "layer a1: the plan has no algorithm for bwd_d");
  expect([](NetPlan& p) { p.steps[2].y_layout = Layout::nchw; },
         "layer conv1.bn: batch norm needs one layout, the plan has x in nchw16c and y in nchw");
  expect([](NetPlan& p) { p.steps.back().x_layout = p.steps.back().y_layout = Layout::nhwc; },
         "layer fc: a fully connected layer works in nchw, the plan has nhwc");
  expect([](NetPlan& p) { p.steps[1].passes[0]->algo = "strassen"; },
         "the plan has strassen for fwd, which refuses");
}

// A plan is a file and may hold anything. Only configs that an algorithm lists are planned.
TEST(NetPlans, ConfigsThatNoAlgorithmListsAreRefused) {
  Training t("residual", DType::f32);
  for (const ConvAlgo* algo : cpu_registry().for_device(DeviceKind::cpu)) {
    t.plan = uniform_plan(t.graph, Mode::training, DType::f32, algo->info().id,
                          blocked_layout(t.device->info()), *t.device);
    for (const char* config :
         {"stores=nontemporal,x=1", "depth=4611686018427387904", "nosuch=1",
          "tile=0,spectra=neither,schedule=nosuch,block=9223372036854775807"}) {
      NetPlan plan = t.plan;
      for (StepPlan& step : plan.steps)
        for (auto& pass : step.passes)
          if (pass) pass->config = Config::parse(config);
      EXPECT_NE(error_of(t, plan).find(" has no config '"), std::string::npos)
          << algo->info().id << " " << config << ": " << error_of(t, plan);
    }
  }
  Net net(t.graph, t.plan, cpu_algos(), *t.device);
}

TEST(NetPlans, AnUnreadLayerIsRefused) {
  Training t("plain");
  const NodeId conv = 1;
  t.graph.add("nowhere", Activation{Activation::Kind::tanh}, {conv});
  t.graph.add("fc3", Linear{2}, {t.graph.nodes().size() - 2});
  t.plan = uniform_plan(t.graph, Mode::training, DType::f64, "im2col", Layout::nchw, *t.device);
  EXPECT_NE(error_of(t, t.plan).find("layer nowhere: nothing reads what it computes"),
            std::string::npos);
}

TEST(NetUse, WhatCannotBeIsSaid) {
  const Training t("plain");
  NetLab lab(t.graph, t.plan, *t.device);
  Net& net = lab.net();
  EXPECT_THROW(net.backward(), InputError);  // before a forward
  net.forward();
  net.backward();
  EXPECT_THROW(net.backward(), InputError);  // twice
  EXPECT_THROW(net.set_input(std::vector<std::byte>(8)), InputError);
  EXPECT_THROW(net.set_labels(std::vector<std::int32_t>(3)), InputError);
  EXPECT_THROW(net.set_targets(std::vector<std::byte>(8)), InputError);
  std::vector<std::byte> few(8);
  EXPECT_THROW(net.read_output(few), InputError);
  EXPECT_THROW(net.read_input_gradient(few), InputError);  // not requested
}

std::string refusal_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const InputError& error) {
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    return error.what();
  }
  return "taken";
}

TEST(NetUse, ALabelIsAClassOrNone) {
  const Training t("residual");
  NetLab lab(t.graph, t.plan, *t.device);
  for (const std::int32_t label : {6, -1, 100000000, -100})
    EXPECT_NE(
        refusal_of([&] {
          lab.net().set_labels(std::vector<std::int32_t>{0, 1, label, 2});
        }).find(fmt::format("the label of image 2 is {}: expected a class from 0 to 5", label)),
        std::string::npos)
        << label;
  lab.net().set_labels(std::vector<std::int32_t>{0, 5, no_label, 2});
  EXPECT_GT(lab.forward(), 0);
}

TEST(NetUse, WhatIsNotTheNetsIsRefused) {
  const Training t("residual");
  NetLab lab(t.graph, t.plan, *t.device);
  Net& net = lab.net();
  const Parameter& bias = lab.parameter("fc.bias");
  std::vector<std::byte> bytes(std::size_t(bias.count) * sizeof(double) + 8);
  const Span exact = Span(bytes).first(bytes.size() - 8);
  net.read(bias.value, exact);
  net.read(bias.gradient + 8, exact.first(8));
  const std::string foreign = "not within a parameter's value, gradient or state";
  const auto expect_foreign = [&](const std::function<void()>& call) {
    EXPECT_NE(refusal_of(call).find(foreign), std::string::npos) << refusal_of(call);
  };
  expect_foreign([&] { net.read(bias.value, bytes); });
  expect_foreign([&] { net.read(bias.value + 8, exact); });
  expect_foreign([&] { net.read(bytes.data(), exact); });
  expect_foreign([&] { net.read(nullptr, exact); });
  expect_foreign([&] { net.read(bias.state[0], exact); });  // before an update
  expect_foreign([&] { net.write(nullptr, exact); });
  expect_foreign([&] { net.write(bias.value, bytes); });

  EXPECT_THROW((void)net.memory_during(net.steps().size(), Phase::forward), InputError);
  Step foreign_step;
  foreign_step.output = 12345;
  EXPECT_THROW(net.is_output_finite(foreign_step), InputError);
  EXPECT_THROW(net.set_counters({.updates = -1}), InputError);

  lab.forward();
  net.backward();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const UpdateRule& rule :
       {UpdateRule(SgdDesc{.rate = nan}), UpdateRule(SgdDesc{.rate = -0.1}),
        UpdateRule(SgdDesc{.momentum = nan}), UpdateRule(SgdDesc{.momentum = 1}),
        UpdateRule(SgdDesc{.weight_decay = -1}), UpdateRule(AdamDesc{.rate = nan}),
        UpdateRule(AdamDesc{.beta1 = 1}), UpdateRule(AdamDesc{.beta2 = nan}),
        UpdateRule(AdamDesc{.epsilon = -1})})
    EXPECT_THROW(net.update(rule), InputError);
  EXPECT_EQ(net.counters().updates, 0);

  const NetPlan plan =
      uniform_plan(t.graph, Mode::inference, DType::f64, "im2col", Layout::nchw, *t.device);
  Net inference(t.graph, plan, cpu_algos(), *t.device, {.loss = Loss::none});
  EXPECT_THROW(inference.start_optimizer(AdamDesc{}), InputError);
  inference.set_input(t.input());
  inference.forward();
  std::vector<std::byte> dy(4 * 6 * sizeof(double));
  EXPECT_THROW(inference.backward(dy), InputError);
}

TEST(NetUse, WhatIsReadMustHaveBeenThere) {
  const Training t("plain");
  Net net(t.graph, t.plan, cpu_algos(), *t.device);
  net.initialise(1);
  EXPECT_EQ(refusal_of([&] { net.forward(); }), "net plain: forward needs set_input before it");
  net.set_input(t.input());
  std::vector<std::byte> y = t.zeros(t.graph.nodes().back());
  EXPECT_EQ(refusal_of([&] { net.read_output(y); }),
            "net plain: read_output needs forward before it");
  net.forward();
  EXPECT_EQ(refusal_of([&] { net.loss(); }), "net plain: loss needs set_labels before it");
  EXPECT_EQ(refusal_of([&] { net.update(SgdDesc{}); }),
            "net plain: update needs backward before it");
  EXPECT_EQ(refusal_of([&] { net.backward(); }), "net plain: backward needs set_labels before it");
  net.backward(y);  // with an external loss no labels are needed
}

TEST(NetUse, AGraphWithoutLayersIsRefused) {
  const auto device = make_cpu_device({1, ""});
  const Graph empty("nothing");
  NetPlan plan;
  plan.net = empty.name();
  EXPECT_THROW(Net(empty, plan, cpu_algos(), *device), InputError);
  EXPECT_THROW((void)plan_misfit(plan, empty, device->info()), InputError);
}

// ---- Memory ----

// Counts what is allocated and not yet freed, and forwards the rest.
class CountingDevice : public CpuBackedDevice {
 public:
  CountingDevice() : CpuBackedDevice({2, ""}) {}
  std::size_t allocated() const { return allocated_; }

  Buffer allocate(std::size_t bytes) override {
    allocated_ += bytes;
    const auto inner = std::make_shared<Buffer>(CpuBackedDevice::allocate(bytes));
    return Buffer(inner->data(), bytes, [this, inner, bytes](std::byte*) { allocated_ -= bytes; });
  }

 private:
  std::size_t allocated_ = 0;
};

TEST(NetMemory, TotalIsWhatWasAllocated) {
  for (const SmallNet& small : small_nets())
    for (const Mode mode : {Mode::training, Mode::inference}) {
      SCOPED_TRACE(small.name + std::string(" in ") + std::string(to_string(mode)));
      CountingDevice device;
      const Graph graph = small.make(4);
      NetLab lab(graph, uniform_plan(graph, mode, DType::f32, "winograd", Layout::nchw16c, device),
                 device);
      const MemoryUse made = lab.net().memory();
      EXPECT_EQ(made.total, device.allocated());
      EXPECT_EQ(made.optimizer, 0u);
      lab.forward();
      if (mode == Mode::inference) {
        EXPECT_EQ(made.gradients, 0u);
        EXPECT_EQ(device.allocated(), made.total);
        lab.net().freeze();
        EXPECT_EQ(device.allocated(), lab.net().memory().total);
        EXPECT_LE(device.allocated(), made.total);
        continue;
      }
      lab.net().backward();
      lab.net().update(SgdDesc{.rate = 0.1});
      EXPECT_EQ(device.allocated(), made.total);
      lab.net().update(SgdDesc{.rate = 0.1, .momentum = 0.9});
      const MemoryUse updated = lab.net().memory();
      EXPECT_GE(updated.optimizer, std::size_t(4 * graph.parameters()));
      EXPECT_EQ(updated.total, device.allocated());
      lab.net().update(AdamDesc{});
      EXPECT_EQ(lab.net().memory().optimizer, 2 * updated.optimizer);
      EXPECT_EQ(lab.net().memory().total, device.allocated());
    }
}

// Inference keeps no activations: more blocks of one shape need no more memory.
TEST(NetMemory, InferenceOfADeepNetNeedsNoMoreThanOfAShallowOne) {
  const auto device = make_cpu_device({2, ""});
  const auto activations = [&](int layers, Mode mode) {
    Graph graph("deep");
    Tensor x = input(graph, {2, 16, 12, 12});
    for (int i = 0; i < layers; ++i)
      x = x.conv(fmt::format("conv{}", i), {.filters = 16, .kernel = 3, .pad = 1})
              .relu(fmt::format("relu{}", i));
    x.global_avg_pool("pool");
    const Net net(graph, uniform_plan(graph, mode, DType::f32, "direct", Layout::nchw16c, *device),
                  cpu_algos(), *device);
    return net.memory().arena;
  };
  EXPECT_EQ(activations(3, Mode::inference), activations(9, Mode::inference));
  EXPECT_GT(activations(9, Mode::training), activations(3, Mode::training));
}

TEST(NetMemory, ABatchThatIsTooBigNamesOneThatFits) {
  // A device that reports little memory, and the same threads and cache on every machine: with many
  // of them workspaces leave no room for any batch that could be named.
  class SmallDevice : public CpuBackedDevice {
   public:
    explicit SmallDevice(std::size_t bytes) {
      info_.memory_bytes = std::int64_t(bytes);
      info_.threads = 2;
      info_.l2_bytes = 1 << 20;
    }
  };
  const auto make = [&](std::int64_t batch, std::size_t memory) {
    SmallDevice device(memory);
    const Graph graph = small_net("residual").make(batch);
    const NetPlan plan =
        uniform_plan(graph, Mode::training, DType::f32, "direct", Layout::nchw16c, device);
    return Net(graph, plan, cpu_algos(), device).memory().total;
  };
  const std::size_t memory = make(32, std::size_t(1) << 40);
  EXPECT_EQ(make(32, memory), memory);
  try {
    make(64, memory);
    FAIL() << "fits";
  } catch (const InputError& error) {
    // How far below 32 depends on the machine: workspaces keep their size, and direct keeps partial
    // sums of the filter's gradient whose number depends on the caches.
    const std::string what = error.what(), says = "a batch of ";
    EXPECT_NE(what.find("net residual: a batch of 64 needs"), std::string::npos) << what;
    EXPECT_NE(what.find("the device has " + show_bytes(std::int64_t(memory))), std::string::npos)
        << what;
    const std::int64_t named = std::atoll(what.c_str() + what.rfind(says) + says.size());
    EXPECT_GE(named, 16) << what;
    EXPECT_LE(named, 32) << what;
    EXPECT_LE(make(named, memory), memory) << what;
  }
  EXPECT_THROW(make(4, 1000), OutOfMemory);  // weights alone do not fit
}

// ---- Parameters ----

TEST(NetParameters, AreNamedAndShapedAsInTorchvision) {
  const Training t("residual");
  NetLab lab(t.graph, t.plan, *t.device);
  EXPECT_EQ(lab.parameter("b.down.weight").shape, (std::vector<std::int64_t>{24, 16, 1, 1}));
  EXPECT_EQ(lab.parameter("fc.weight").shape, (std::vector<std::int64_t>{6, 24}));
  EXPECT_EQ(lab.parameter("fc.bias").count, 6);
  EXPECT_NE(lab.parameter("a1.bn.weight").gradient, nullptr);
  EXPECT_EQ(lab.parameter("a1.bn.running_var").gradient, nullptr);
  std::int64_t trained = 0;
  std::set<std::string> names;
  for (const Parameter& p : lab.net().parameters()) {
    if (p.gradient != nullptr) trained += p.count;
    names.insert(p.name);
  }
  EXPECT_EQ(trained, t.graph.parameters());
  EXPECT_EQ(names.size(), lab.net().parameters().size());

  NetLab inference(
      t.graph,
      uniform_plan(t.graph, Mode::inference, DType::f64, "im2col", Layout::nchw, *t.device),
      *t.device);
  std::set<std::string> same;
  for (const Parameter& p : inference.net().parameters()) {
    EXPECT_EQ(p.gradient, nullptr);
    same.insert(p.name);
  }
  EXPECT_EQ(same, names);
}

TEST(NetParameters, StartByHeOrGlorotAndTheSameInEveryType) {
  Graph graph("starts");
  input(graph, {1, 32, 4, 4})
      .conv("he", {.filters = 64, .kernel = 3, .pad = 1, .bias = false})
      .batch_norm("bn")
      .relu("relu")
      .conv("glorot", {.filters = 64, .kernel = 3, .pad = 1})
      .tanh("tanh")
      .linear("fc", 300);
  const auto device = make_cpu_device({2, ""});
  const auto start = [&](DType dtype, std::uint64_t seed) {
    const NetPlan plan =
        uniform_plan(graph, Mode::training, dtype, "im2col", Layout::nchw, *device);
    Net net(graph, plan, cpu_algos(), *device);
    net.initialise(seed);
    std::map<std::string, Values> values;
    for (const Parameter& p : net.parameters()) {
      std::vector<std::byte> bytes(std::size_t(p.count * size_of(dtype)));
      net.read(p.value, bytes);
      for (std::int64_t i = 0; i < p.count; ++i)
        values[p.name].push_back(dtype == DType::f64
                                     ? reinterpret_cast<const double*>(bytes.data())[i]
                                     : double(reinterpret_cast<const float*>(bytes.data())[i]));
    }
    return values;
  };
  const auto values = start(DType::f64, 7);
  const auto deviation = [](const Values& v) {
    double sum = 0;
    for (const double x : v) sum += x * x;
    return std::sqrt(sum / double(v.size()));
  };
  EXPECT_NEAR(deviation(values.at("he.weight")), std::sqrt(2.0 / (32 * 9)), 0.002);
  const double limit = std::sqrt(6.0 / (64 * 9 + 64 * 9));
  EXPECT_NEAR(deviation(values.at("glorot.weight")), limit / std::sqrt(3.0), 0.001);
  EXPECT_LE(*std::max_element(values.at("glorot.weight").begin(), values.at("glorot.weight").end()),
            limit);
  // So many weights that they are generated in pieces, which must all differ.
  const Values& fc = values.at("fc.weight");
  const double fc_limit = std::sqrt(6.0 / (64 * 16 + 300));
  EXPECT_NEAR(deviation(fc), fc_limit / std::sqrt(3.0), 0.001);
  EXPECT_EQ(std::set<double>(fc.begin(), fc.end()).size(), fc.size());
  EXPECT_EQ(values.at("glorot.bias"), Values(64, 0.0));
  EXPECT_EQ(values.at("bn.weight"), Values(64, 1.0));
  EXPECT_EQ(values.at("bn.bias"), Values(64, 0.0));
  EXPECT_EQ(values.at("bn.running_mean"), Values(64, 0.0));
  EXPECT_EQ(values.at("bn.running_var"), Values(64, 1.0));
  for (const auto& [name, in_f32] : start(DType::f32, 7)) {
    Values rounded = values.at(name);
    for (double& v : rounded) v = double(float(v));
    EXPECT_EQ(in_f32, rounded) << name;
  }
  EXPECT_NE(start(DType::f64, 8).at("he.weight"), values.at("he.weight"));
}

TEST(NetParameters, UpdateTakesAStepDownTheGradient) {
  const Training t("residual");
  NetLab lab(t.graph, t.plan, *t.device);
  lab.forward();
  lab.net().backward();
  std::map<std::string, Values> before;
  for (const Parameter& p : lab.net().parameters()) before[p.name] = lab.read(p.value, p.count);
  lab.net().update(SgdDesc{.rate = 0.125});
  for (const Parameter& p : lab.net().parameters()) {
    const Values after = lab.read(p.value, p.count);
    if (p.gradient == nullptr) {
      EXPECT_EQ(after, before[p.name]) << p.name;
      continue;
    }
    const Values gradient = lab.read(p.gradient, p.count);
    for (std::size_t i = 0; i < after.size(); ++i)
      ASSERT_NEAR(after[i], before[p.name][i] - 0.125 * gradient[i], 1e-12) << p.name;
  }
}

// One rule after the other, since each must initialise its own state.
TEST(NetParameters, TrainingLowersTheLoss) {
  for (const UpdateRule& rule :
       {UpdateRule(SgdDesc{.rate = 0.02, .momentum = 0.9}), UpdateRule(AdamDesc{.rate = 0.01})}) {
    const Training t("branches", DType::f32, 8);
    NetLab lab(t.graph, t.plan, *t.device);
    const double first = lab.forward();
    for (int i = 0; i < 30; ++i) {
      lab.net().backward();
      lab.net().update(rule);
      lab.net().forward();
    }
    EXPECT_LT(lab.net().loss(), 0.2 * first);
  }
}

// Adam's bias corrections depend on the number of the update, which the net counts.
TEST(NetParameters, AdamsUpdatesAreCounted) {
  const Training t("plain");
  NetLab lab(t.graph, t.plan, *t.device);
  const Parameter& p = lab.parameter("conv1.weight");
  Values w = lab.read(p.value, p.count), mean(w.size(), 0.0), square(w.size(), 0.0);
  for (int step = 1; step <= 3; ++step) {
    lab.forward();
    lab.net().backward();
    const Values g = lab.read(p.gradient, p.count);
    lab.net().update(AdamDesc{.rate = 1e-3});
    const Values after = lab.read(p.value, p.count);
    for (std::size_t i = 0; i < w.size(); ++i) {
      mean[i] = 0.9 * mean[i] + 0.1 * g[i];
      square[i] = 0.999 * square[i] + 0.001 * g[i] * g[i];
      w[i] -= 1e-3 * mean[i] / (1 - std::pow(0.9, step)) /
              (std::sqrt(square[i] / (1 - std::pow(0.999, step))) + 1e-8);
      ASSERT_NEAR(after[i], w[i], 1e-10) << "update " << step;
    }
  }
}

// ---- Continuing in another net ----

// A second net that gets the first one's parameters, their state and the counters continues bit for
// bit as the first one does, including momentum, Adam's corrections and dropout's draws.
TEST(NetState, IsAllThatTheNextIterationsDependOn) {
  const Training t("old_style", DType::f32);
  const auto step = [](NetLab& lab, const UpdateRule& rule) {
    lab.forward();
    lab.net().backward();
    lab.net().update(rule);
  };
  for (const UpdateRule& rule :
       {UpdateRule(SgdDesc{.rate = 0.1, .momentum = 0.9}), UpdateRule(AdamDesc{})}) {
    NetLab first(t.graph, t.plan, *t.device, {.dropout_seed = 3});
    NetLab second(t.graph, t.plan, *t.device, {.dropout_seed = 3});
    for (int i = 0; i < 3; ++i) step(first, rule);
    second.net().start_optimizer(rule);
    second.net().set_counters(first.net().counters());
    for (const Parameter& from : first.net().parameters()) {
      const Parameter& to = second.parameter(from.name);
      second.write(to.value, first.read(from.value, from.count));
      for (std::size_t s = 0; s < from.state.size(); ++s) {
        ASSERT_EQ(from.state[s] == nullptr, to.state[s] == nullptr) << from.name;
        if (from.state[s] != nullptr)
          second.write(to.state[s], first.read(from.state[s], from.count));
      }
    }
    for (int i = 0; i < 2; ++i) {
      step(first, rule);
      step(second, rule);
    }
    for (const Parameter& p : first.net().parameters())
      EXPECT_EQ(first.read(p.value, p.count), second.read(second.parameter(p.name).value, p.count))
          << p.name;
    EXPECT_EQ(first.net().loss(), second.net().loss());
  }
}

TEST(NetState, ToldWhichStepLeavesWhatIsNotFinite) {
  const Training t("residual");
  NetLab lab(t.graph, t.plan, *t.device);
  const Parameter& weights = lab.parameter("b1.weight");
  Values values = lab.read(weights.value, weights.count);
  values[5] = std::numeric_limits<double>::infinity();
  lab.write(weights.value, values);
  std::vector<std::string> not_finite;
  lab.net().observe([&](const Step& step, Phase, double, double) {
    if (!lab.net().is_output_finite(step)) not_finite.push_back(t.graph.nodes()[step.node].name);
  });
  lab.forward();
  // b.down.bn accumulates onto the output of b2.bn.
  EXPECT_EQ(not_finite,
            (std::vector<std::string>{"b1", "b1.bn", "b2", "b2.bn", "b.down.bn", "pool", "fc"}));
}

// ---- Dropout ----

TEST(NetUse, DropoutDrawsAnewInEachIteration) {
  const Training t("old_style");
  NetLab lab(t.graph, t.plan, *t.device, {.dropout_seed = 1});
  NetLab other(t.graph, t.plan, *t.device, {.dropout_seed = 2});
  const double first = lab.forward();
  EXPECT_NE(first, lab.forward());
  EXPECT_NE(first, other.forward());
}

// ---- Observing ----

TEST(NetUse, AnObserverSeesEveryStepAndPhaseInOrder) {
  const Training t("residual");
  NetLab lab(t.graph, t.plan, *t.device);
  Net& net = lab.net();
  std::vector<std::string> seen;
  double last = 0;
  net.observe([&](const Step& step, Phase phase, double begin, double end) {
    EXPECT_LE(last, begin);
    EXPECT_LE(begin, end);
    last = end;
    seen.push_back(t.graph.nodes()[step.node].name + " " + std::string(to_string(phase)));
  });
  net.forward();
  net.backward();
  net.update(SgdDesc{});
  const std::vector<std::string> begin{"conv1 fwd", "conv1.bn fwd", "a1 fwd"};
  ASSERT_GT(seen.size(), begin.size());
  EXPECT_TRUE(std::equal(begin.begin(), begin.end(), seen.begin()));
  const auto count = [&](const std::string& what) {
    return std::count(seen.begin(), seen.end(), what);
  };
  EXPECT_EQ(count("a1 bwd_d"), 1);
  EXPECT_EQ(count("a1 bwd_w"), 1);
  EXPECT_EQ(count("a1 update"), 1);
  EXPECT_EQ(count("conv1 bwd_w"), 1);
  EXPECT_EQ(count("conv1 bwd_d"), 0);  // the input's gradient is not needed
  EXPECT_EQ(count("pool update"), 0);
  net.observe(nullptr);
  net.forward();
  EXPECT_EQ(seen.back(), "fc update");
}

TEST(NetUse, StopsBetweenTwoSteps) {
  const Training t("residual");
  NetLab lab(t.graph, t.plan, *t.device);
  const double loss = lab.forward();
  std::atomic<bool> stop = false;
  int steps = 0;
  lab.net().stop_when(&stop);
  lab.net().observe([&](const Step&, Phase, double, double) { stop = ++steps == 3; });
  EXPECT_THROW(lab.net().forward(), Interrupted);
  EXPECT_EQ(steps, 3);
  lab.net().observe(nullptr);
  EXPECT_THROW(lab.net().backward(), Error);  // the forward was interrupted
  stop = false;
  EXPECT_EQ(lab.forward(), loss);
}

// ---- Inference ----

// The filter may be packed once or by each run, and folded or not.
TEST(NetInference, AFrozenNetComputesTheSameWithLess) {
  const auto device = make_cpu_device({1, ""});
  for (const char* name : {"residual", "old_style"})
    for (const char* algo : {"winograd", "direct", "im2col"})
      for (const bool packs_each_run : {false, true}) {
        SCOPED_TRACE(fmt::format("{} {} {}", name, algo, packs_each_run));
        const Graph graph = small_net(name).make(2);
        NetPlan plan =
            uniform_plan(graph, Mode::inference, DType::f32, algo, Layout::nchw, *device);
        NetLab thawed(graph, plan, *device, {.poison = true});
        thawed.forward();
        for (StepPlan& step : plan.steps)
          for (auto& pass : step.passes)
            if (pass) pass->packs_each_run = packs_each_run;
        NetLab frozen(graph, plan, *device, {.poison = true});
        const std::size_t before = frozen.net().memory().weights;
        frozen.net().freeze();
        EXPECT_LE(frozen.net().memory().weights, before);
        for (int i = 0; i < 2; ++i) {
          frozen.forward();
          EXPECT_EQ(frozen.output(), thawed.output());
        }
        EXPECT_THROW(frozen.net().initialise(1), InputError);
        EXPECT_THROW(frozen.net().parameters_changed(), InputError);
      }
}

TEST(NetInference, FreezingFreesWhatIsFoldedOrPacked) {
  const auto device = make_cpu_device({1, ""});
  const Graph graph = small_net("residual").make(2);
  NetLab lab(graph,
             uniform_plan(graph, Mode::inference, DType::f32, "winograd", Layout::nchw, *device),
             *device);
  lab.net().freeze();
  EXPECT_EQ(lab.parameter("b1.weight").value, nullptr);
  EXPECT_EQ(lab.parameter("b1.bn.running_mean").value, nullptr);
  EXPECT_NE(lab.parameter("fc.weight").value, nullptr);
  EXPECT_THROW(lab.read(lab.parameter("b1.weight").value, 1), InputError);
  const Training t("residual");
  NetLab training(t.graph, t.plan, *t.device);
  EXPECT_THROW(training.net().freeze(), InputError);
}

// A training pass over one batch reveals the batch's mean and variance by how it moves the running
// statistics. Inference with exactly these must give the training pass's output.
TEST(NetInference, WithTheBatchsStatisticsIsTheTrainingForward) {
  for (const char* name : {"residual", "shortcuts", "branches", "normalised_input"}) {
    SCOPED_TRACE(name);
    Training t(name);
    NetLab training(t.graph, t.plan, *t.device);
    std::map<std::string, Values> values;
    for (const Parameter& p : training.net().parameters())
      values[p.name] = training.read(p.value, p.count);
    training.forward();
    for (const Node& node : t.graph.nodes()) {
      if (!std::holds_alternative<BatchNorm>(node.layer)) continue;
      const double count = double(node.shape.n * node.shape.pixels());
      for (const char* which : {".running_mean", ".running_var"}) {
        const Parameter& p = training.parameter(node.name + which);
        const Values after = training.read(p.value, p.count);
        Values& value = values[p.name];
        const double biased = which == std::string(".running_var") ? (count - 1) / count : 1;
        for (std::size_t c = 0; c < value.size(); ++c)
          value[c] = (after[c] - 0.9 * value[c]) / 0.1 * biased;
      }
    }
    const Values expected = training.output();

    for (const char* algo : {"im2col", "fft"}) {
      NetLab inference(
          t.graph,
          uniform_plan(t.graph, Mode::inference, DType::f64, algo, Layout::nhwc, *t.device),
          *t.device);
      inference.forward();
      EXPECT_GT(relative_error(inference.output(), expected), 1e-3);
      for (const Parameter& p : inference.net().parameters())
        inference.write(p.value, values.at(p.name));
      inference.net().parameters_changed();
      inference.forward();
      EXPECT_LE(relative_error(inference.output(), expected), 1e-10);
    }
  }
}

}  // namespace
}  // namespace convlab::nets
