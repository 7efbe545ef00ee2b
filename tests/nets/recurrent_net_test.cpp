// Recurrent layers in nets: against central differences and the reference, their parameters, plans,
// and what is refused.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <span>

#include "conv/error.h"
#include "kernels_cpu/cpu.h"
#include "nets/plan/choose.h"
#include "nets/tensor.h"
#include "nets/train/checkpoint.h"
#include "nets/weights/weights.h"
#include "nets/zoo/zoo.h"
#include "recurrent/reference.h"
#include "tests/nets/net_lab.h"

namespace convlab::nets {
namespace {

std::vector<Recurrent> layers() {
  std::vector<Recurrent> all;
  for (const RecurrentCell cell : all_cells)
    for (const std::int64_t layers : {1, 2})
      for (const bool bidirectional : {false, true})
        all.push_back(
            {.cell = cell, .hidden = 5, .layers = layers, .bidirectional = bidirectional});
  return all;
}

std::string text(const Recurrent& r) {
  return fmt::format("{} l{}{}{}", to_string(r.cell), r.layers, r.bidirectional ? " bi" : "",
                     r.every_step ? " every step" : "");
}

// 2 channels of 6 steps of 3 columns each.
Graph net_of(const Recurrent& layer, std::int64_t batch = 3) {
  Graph net("sequences");
  input(net, {batch, 2, 6, 3}).recurrent("rnn", layer).linear("fc", 4);
  return net;
}

std::string refusal(const std::function<void()>& f) {
  try {
    f();
  } catch (const InputError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(RecurrentNets, GradientsAreThoseOfCentralDifferences) {
  const auto device = make_cpu_device({1, ""});
  for (Recurrent layer : layers())
    for (const bool every_step : {false, true}) {
      layer.every_step = every_step;
      SCOPED_TRACE(text(layer));
      const Graph graph = net_of(layer);
      for (const char* algo : {"stepwise", "persistent"})
        check_gradients(
            graph, uniform_plan(graph, Mode::training, DType::f64, algo, Layout::nchw, *device),
            *device, {.input_gradient = true});
    }
}

// x of N C T W as the reference has it, and its y as N C T.
Values reference(const RecurrentProblem& p, const Shape& x, const Values& input,
                 const Values& weights, bool every_step) {
  Values sequence(input.size());
  for (std::int64_t n = 0, i = 0; n < x.n; ++n)
    for (std::int64_t c = 0; c < x.c; ++c)
      for (std::int64_t t = 0; t < x.h; ++t)
        for (std::int64_t w = 0; w < x.w; ++w, ++i)
          sequence[std::size_t(((t * x.n + n) * x.c + c) * x.w + w)] = input[std::size_t(i)];
  const Values y = reference_of(p, {.x = sequence, .weights = weights}).out;
  const std::int64_t units = p.directions() * p.h;
  Values output;
  for (std::int64_t n = 0; n < p.n; ++n)
    for (std::int64_t c = 0; c < units; ++c)
      for (std::int64_t t = 0; t < (every_step ? p.t : 1); ++t) {
        const std::int64_t step = every_step ? t : c < p.h ? p.t - 1 : 0;
        output.push_back(y[std::size_t((step * p.n + n) * units + c)]);
      }
  return output;
}

TEST(RecurrentNets, ComputeWhatTheReferenceDoes) {
  const auto device = make_cpu_device({2, ""});
  for (Recurrent layer : layers())
    for (const bool every_step : {false, true}) {
      layer.every_step = every_step;
      SCOPED_TRACE(text(layer));
      for (const Shape& shape : {Shape{3, 2, 6, 3}, {1, 4, 5, 1}, {2, 1, 1, 7}}) {
        Graph graph("sequences");
        input(graph, shape).recurrent("rnn", layer);
        const RecurrentProblem p = graph.recurrent_problem(graph.nodes().back());
        for (const RecurrentAlgo* algo : cpu_recurrent().for_device(DeviceKind::cpu)) {
          if (algo->refuse(p, *device)) continue;
          for (const Mode mode : {Mode::inference, Mode::training}) {
            NetLab lab(
                graph,
                uniform_plan(graph, mode, DType::f32, algo->info().id, Layout::nchw, *device),
                *device, {.loss = Loss::none, .poison = true});
            lab.forward();
            Values weights;
            for (const Parameter& parameter : lab.net().parameters()) {
              const Values part = lab.read(parameter.value, parameter.count);
              weights.insert(weights.end(), part.begin(), part.end());
            }
            ASSERT_EQ(std::int64_t(weights.size()), p.weights_elements());
            EXPECT_LE(
                relative_error(lab.output(), reference(p, shape, lab.input(), weights, every_step)),
                1e-6)
                << algo->info().id;
            if (mode == Mode::training) continue;
            const Values output = lab.output();
            lab.net().freeze();
            lab.forward();
            EXPECT_EQ(lab.output(), output) << algo->info().id;
          }
        }
      }
    }
}

TEST(RecurrentNets, HavePyTorchsParameters) {
  const auto device = make_cpu_device({1, ""});
  const Graph graph =
      net_of({.cell = RecurrentCell::lstm, .hidden = 50, .layers = 2, .bidirectional = true});
  const NetPlan plan =
      uniform_plan(graph, Mode::training, DType::f64, "stepwise", Layout::nchw, *device);
  Net net(graph, plan, cpu_algos(), *device);
  net.initialise(1);
  std::vector<std::string> names;
  std::int64_t count = 0;
  for (const Parameter& p : net.parameters()) {
    names.push_back(fmt::format("{} {}", p.name, p.shape.front()));
    if (p.shape.size() > 1) names.back() += fmt::format("x{}", p.shape.back());
    count += p.count;
    if (!p.name.starts_with("rnn.")) continue;
    Values values(std::size_t(p.count));
    net.read(p.value, std::as_writable_bytes(std::span(values)));
    double most = 0, squares = 0;
    for (const double v : values) most = std::max(most, std::abs(v)), squares += v * v;
    EXPECT_LE(most, 1 / std::sqrt(50.0)) << p.name;
    EXPECT_NEAR(squares / double(p.count), 1 / 150.0, 0.15 / 150) << p.name;
  }
  EXPECT_EQ(count, graph.parameters());
  EXPECT_EQ(names,
            (std::vector<std::string>{
                "rnn.weight_ih_l0 200x6", "rnn.weight_hh_l0 200x50", "rnn.bias_ih_l0 200",
                "rnn.bias_hh_l0 200", "rnn.weight_ih_l0_reverse 200x6",
                "rnn.weight_hh_l0_reverse 200x50", "rnn.bias_ih_l0_reverse 200",
                "rnn.bias_hh_l0_reverse 200", "rnn.weight_ih_l1 200x100", "rnn.weight_hh_l1 200x50",
                "rnn.bias_ih_l1 200", "rnn.bias_hh_l1 200", "rnn.weight_ih_l1_reverse 200x100",
                "rnn.weight_hh_l1_reverse 200x50", "rnn.bias_ih_l1_reverse 200",
                "rnn.bias_hh_l1_reverse 200", "fc.weight 4x100", "fc.bias 4"}));
}

// Its sequence of steps, its transposition and the gradient itself then take no memory either.
TEST(RecurrentNets, FirstLayersComputeNoGradientOfTheInput) {
  const auto device = make_cpu_device({1, ""});
  const Graph graph = net_of({.cell = RecurrentCell::gru, .hidden = 5, .bidirectional = true}, 64);
  const std::size_t dx = 64 * 36 * sizeof(float);
  for (const RecurrentAlgo* algo : cpu_recurrent().for_device(DeviceKind::cpu)) {
    const NetPlan plan =
        uniform_plan(graph, Mode::training, DType::f32, algo->info().id, Layout::nchw, *device);
    NetLab with(graph, plan, *device, {.input_gradient = true}), without(graph, plan, *device);
    for (NetLab* lab : {&with, &without}) lab->forward(), lab->net().backward();
    auto expected = with.gradients();
    expected.erase("input");
    EXPECT_EQ(without.gradients(), expected) << algo->info().id;
    EXPECT_GE(with.net().memory().total, without.net().memory().total + 3 * dx) << algo->info().id;
  }
}

// Each part of the block, whose ends lie on no line of a cache.
TEST(RecurrentNets, UpdateEveryParameterOnce) {
  const auto device = make_cpu_device({1, ""});
  const Graph graph = net_of({.cell = RecurrentCell::gru, .hidden = 5, .layers = 2});
  NetLab lab(graph,
             uniform_plan(graph, Mode::training, DType::f64, "stepwise", Layout::nchw, *device),
             *device);
  lab.forward();
  lab.net().backward();
  std::map<std::string, Values> expected = lab.gradients();
  for (auto& [name, values] : expected) {
    const Parameter& p = lab.parameter(name);
    const Values before = lab.read(p.value, p.count);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = before[i] - 0.1 * values[i];
  }
  lab.net().update(SgdDesc{.rate = 0.1, .momentum = 0.9});
  for (const auto& [name, values] : expected) {
    const Parameter& p = lab.parameter(name);
    EXPECT_LE(relative_error(lab.read(p.value, p.count), values), 1e-15) << name;
    EXPECT_NE(p.state[0], nullptr) << name;
  }
}

TEST(RecurrentNets, GoOnFromACheckpoint) {
  const auto device = make_cpu_device({1, ""});
  const std::string file =
      (std::filesystem::path(testing::TempDir()) / "recurrent.safetensors").string();
  const Graph graph = net_of({.cell = RecurrentCell::lstm, .hidden = 5, .bidirectional = true});
  const NetPlan plan =
      uniform_plan(graph, Mode::training, DType::f32, "persistent", Layout::nchw, *device);
  const AdamDesc rule{.rate = 0.01};
  NetLab lab(graph, plan, *device);
  const auto step = [&](NetLab& of) {
    const double loss = of.forward();
    of.net().backward();
    of.net().update(rule);
    return loss;
  };
  for (int i = 0; i < 3; ++i) step(lab);
  TrainingState state;
  state.net = graph.name();
  state.batch = graph.batch();
  state.plan = plan;
  state.rule = rule;
  state.counters = lab.net().counters();
  write_checkpoint(file, lab.net(), state);
  std::vector<double> losses, again;
  for (int i = 0; i < 3; ++i) losses.push_back(step(lab));

  NetLab other(graph, plan, *device);
  const Checkpoint checkpoint = read_checkpoint(file);
  EXPECT_EQ(checkpoint.state.plan, plan);
  restore(checkpoint, rule, other.net());
  for (int i = 0; i < 3; ++i) again.push_back(step(other));
  EXPECT_EQ(again, losses);

  NetLab third(graph, plan, *device, {}, 2);
  load_weights(third.net(), ArrayReader(file));
  third.set_input(lab.input());
  load_weights(lab.net(), ArrayReader(file));
  lab.forward(), third.forward();
  EXPECT_EQ(third.output(), lab.output());
  std::filesystem::remove(file);
}

// ---- Plans ----

Chosen chosen(const Graph& graph, const ChooseOptions& options, Device& device) {
  return choose_plan(graph, options, cpu_algos(), device, nullptr);
}

TEST(RecurrentNets, ArePlanned) {
  const auto device = make_cpu_device({2, ""});
  for (const char* name : {"rnn:28-64x2-10", "rnn:9x20-33-4:gru:bi"})
    for (const Mode mode : {Mode::training, Mode::inference})
      for (const DType dtype : {DType::f32, DType::f64}) {
        const Graph graph = make_net(name, 4);
        const NetPlan plan = chosen(graph, {.mode = mode, .dtype = dtype}, *device).plan;
        const StepPlan& step = plan.steps[1];
        EXPECT_EQ(step.layer, "rnn");
        for (const Pass pass : all_passes)
          EXPECT_EQ(step.passes[std::size_t(pass)].has_value(),
                    pass == Pass::forward || mode == Mode::training);
        EXPECT_GT(step.passes[0]->ms, 0);
        EXPECT_EQ(plan_from_json(to_json(plan), "plan"), plan);
        NetLab(graph, plan, *device).forward();
      }
}

// A recurrent step reports no more workspace than the limit that its plan was made for.
TEST(RecurrentNets, KeepToTheLimitOfTheirPlan) {
  const auto device = make_cpu_device({2, ""});
  for (const char* name : {"rnn:28-32-10:lstm", "rnn:9x20-33x2-4:gru:bi"}) {
    const Graph graph = make_net(name, 4);
    const auto workspace = [&](std::optional<std::int64_t> limit) {
      NetLab lab(graph, chosen(graph, {.workspace_max = limit}, *device).plan, *device);
      lab.forward();
      lab.net().backward();
      std::size_t most = 0;
      for (const Phase phase : {Phase::forward, Phase::backward_data})
        most = std::max(most, lab.net().memory_during(1, phase).workspace);
      return std::int64_t(most);
    };
    const std::int64_t free = workspace({});
    EXPECT_EQ(workspace(free), free) << name;
    int kept = 0;
    for (const double share : {0.7, 0.4, 0.2}) try {
        const auto limit = std::int64_t(share * double(free));
        EXPECT_LE(workspace(limit), limit) << name;
        ++kept;
      } catch (const InputError& error) {
        EXPECT_NE(std::string(error.what()).find("bytes of workspace"), std::string::npos);
      }
    EXPECT_GE(kept, 1) << name;
  }
}

// Sequences and gradients of gates do not depend on the choice of an algorithm.
TEST(RecurrentNets, CountSequencesAsActivationsAndGradients) {
  const auto device = make_cpu_device({1, ""});
  const Graph graph = net_of({.cell = RecurrentCell::lstm, .hidden = 64}, 64);
  const NetPlan plan =
      uniform_plan(graph, Mode::training, DType::f32, "stepwise", Layout::nchw, *device);
  NetLab lab(graph, plan, *device);
  const std::size_t dgates = 6 * 64 * 4 * 64 * sizeof(float), dy = dgates / 4;
  const MemoryUse during = lab.net().memory_during(1, Phase::backward_data);
  EXPECT_GE(during.gradients, dgates + dy);
  EXPECT_LT(during.workspace, dgates);
}

TEST(RecurrentNets, ArePlannedWithTheAlgorithmsNamed) {
  const auto device = make_cpu_device({2, ""});
  Graph graph("both");  // large enough that packing hardly counts
  input(graph, {16, 2, 64, 16})
      .conv("conv", {.filters = 8, .kernel = 3, .pad = 1})
      .recurrent("rnn", {.hidden = 256});
  const auto algos = [&](const ChooseOptions& options) {
    std::set<std::string> names;
    const NetPlan plan = chosen(graph, options, *device).plan;
    for (const auto& pass : plan.steps.back().passes) names.insert(pass->algo);
    return names;
  };
  using Names = std::set<std::string>;
  EXPECT_EQ(algos({}), (Names{"batched_input", "persistent"}));  // persistent leaves bwd_w out
  EXPECT_EQ(algos({.exclude = {"persistent"}}), Names{"batched_input"});
  EXPECT_EQ(algos({.algos = {"stepwise", "im2col"}}), Names{"stepwise"});
  EXPECT_EQ(algos({.exclude = {"persistent", "batched_input", "vendor", "direct"}}),
            Names{"stepwise"});
  // The names of the one kind leave the other alone.
  EXPECT_EQ(algos({.algos = {"im2col"}}), algos({}));
  EXPECT_EQ(refusal([&] { algos({.algos = {"persistant"}}); }).substr(0, 7), "unknown");
  EXPECT_EQ(
      refusal([&] {
        algos({.exclude = {"persistent", "batched_input", "vendor", "stepwise"}});
      }),
      "net both, layer rnn: no algorithm that is admitted takes "
      "rnn:l1t64mb16sic256slc128dhc256dic256 in f32 in all of its passes: admit more algorithms");
}

// oneDNN's passes read each other's format only.
TEST(RecurrentNets, DoNotMixFormats) {
  if (cpu_recurrent().find(DeviceKind::cpu, "onednn.rnn") == nullptr)
    GTEST_SKIP() << "without oneDNN";
  const auto device = make_cpu_device({2, ""});
  const Graph graph = net_of({.hidden = 5});
  NetPlan plan = chosen(graph, {.algos = {"onednn"}}, *device).plan;
  for (const auto& pass : plan.steps[1].passes) EXPECT_EQ(pass->algo, "onednn.rnn");
  NetLab lab(graph, plan, *device);
  NetLab own(graph, chosen(graph, {.algos = {"stepwise"}}, *device).plan, *device);
  EXPECT_NEAR(lab.forward(), own.forward(), 1e-6);
  lab.net().backward(), own.net().backward();
  const auto expected = own.gradients();
  for (const auto& [name, gradient] : lab.gradients())
    EXPECT_LE(relative_error(gradient, expected.at(name)), 1e-5) << name;

  plan.steps[1].passes[std::size_t(Pass::backward_data)]->algo = "stepwise";
  EXPECT_EQ(refusal([&] { Net(graph, plan, cpu_algos(), *device); }),
            "net sequences, layer rnn: the plan has onednn.rnn for fwd and stepwise for bwd_d: the "
            "former reads and writes a format of its own, and takes all passes or none");
}

// ---- Refusals ----

TEST(RecurrentNets, RefusePlansThatDoNotFit) {
  const auto device = make_cpu_device({2, ""});
  const Graph graph = net_of({.hidden = 5});
  const NetPlan good = chosen(graph, {.algos = {"stepwise"}}, *device).plan;
  const auto with = [&](auto change) {
    NetPlan plan = good;
    change(plan.steps[1]);
    return refusal([&] { Net(graph, plan, cpu_algos(), *device); });
  };
  const std::string layer = "net sequences, layer rnn: ";
  EXPECT_EQ(with([](StepPlan& s) { s.passes[1].reset(); }),
            layer + "the plan has no algorithm for bwd_d");
  EXPECT_EQ(with([](StepPlan& s) { s.passes[0]->images = 2; }),
            layer + "the plan takes 2 of 3 images at a time in fwd: expected all");
  EXPECT_EQ(with([](StepPlan& s) {
              s.passes[2]->config = Config{{"tiles", 3}};
            }),
            layer + "stepwise has no config 'tiles=3' for bwd_w here: expected ''");
  EXPECT_EQ(with([](StepPlan& s) { s.x_layout = s.y_layout = Layout::nhwc; }),
            layer + "a recurrent layer works in nchw, the plan has nhwc");
  EXPECT_EQ(with([](StepPlan& s) { s.passes[0]->algo = "direct"; }).substr(0, layer.size() + 7),
            layer + "unknown");
  EXPECT_EQ(refusal([&] { Net(graph, good, cpu_registry(), *device); }),
            layer + "is recurrent, but no algorithms for such layers were given (nets::NetAlgos)");
}

TEST(RecurrentNets, RefuseImpossibleSizes) {
  EXPECT_EQ(refusal([] { net_of({.hidden = 0}); }),
            "net sequences, layer rnn: impossible problem: dhc is 0: it takes 1 to 2^60");
  EXPECT_EQ(refusal([] { net_of({.hidden = 5, .layers = 0}); }),
            "net sequences, layer rnn: impossible problem: l is 0: it takes 1 to 2^60");
  const Graph graph = net_of({.hidden = 5});
  EXPECT_THROW((void)graph.recurrent_problem(graph.nodes().back()), InputError);
  EXPECT_THROW((void)graph.conv_problem(graph.nodes()[1]), InputError);
}

}  // namespace
}  // namespace convlab::nets
