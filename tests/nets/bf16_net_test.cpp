// Nets of bf16 against f64.
//
// Both have the same weights and input, which are numbers of bf16. A net of bf16 then rounds each
// layer's output and gradient, and each filter's gradient: a value by up to 2^-8 of itself. What a
// net makes of such changes is measured in f64: how far its results move when each weight and each
// pixel changes by a random part of up to 2^-8. A layer has about as many tensors that are rounded
// as tensors that are changed so, at most twice as many, and two random samples of what ReLUs and
// maxima make of a change differ by about as much again: the bound is four times the greatest of
// six such changes, and never less than four roundings.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>

#include "conv/error.h"
#include "conv/types/half.h"
#include "kernels_cpu/cpu.h"
#include "nets/plan/choose.h"
#include "nets/tensor.h"
#include "tests/nets/net_lab.h"

namespace convlab::nets {
namespace {

constexpr double unit = 1.0 / 256;

std::vector<SmallNet> feed_forward_nets() {
  std::vector<SmallNet> nets = small_nets();
  std::erase_if(nets, [](const SmallNet& net) { return net.name == "recurrent"; });
  return nets;
}

Values rounded(Values values) {
  for (double& v : values) v = double(BFloat16(v));
  return values;
}

Values changed(Values values, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> part(-unit, unit);
  for (double& v : values) v *= 1 + part(random);
  return values;
}

// Parameters and input become numbers of bf16, or, with a change, numbers near these.
void set_values(NetLab& lab, std::uint64_t change) {
  std::uint64_t seed = change << 32;
  const auto near = [&](const Values& values) {
    return change == 0 ? rounded(values) : changed(rounded(values), ++seed);
  };
  for (const Parameter& p : lab.net().parameters())
    lab.write(p.value, near(lab.read(p.value, p.count)));
  lab.net().parameters_changed();
  lab.set_input(near(lab.input()));
}

struct Setting {
  Mode mode = Mode::training;
  Loss loss = Loss::cross_entropy;
  DType dtype = DType::f64;
  std::string algo = "im2col";
  Layout layout = Layout::nchw;
  std::uint64_t change = 0;
};

using Results = std::map<std::string, Values>;

// The output; in training also the loss and all gradients. Memory that must not be read is NaN.
Results results_of(const SmallNet& small, const Setting& s) {
  const auto device = make_cpu_device({2, ""});
  const Graph graph = small.make(3);
  const bool training = s.mode == Mode::training;
  NetLab lab(graph, uniform_plan(graph, s.mode, s.dtype, s.algo, s.layout, *device), *device,
             {.loss = training ? s.loss : Loss::none,
              .input_gradient = training,
              .dropout_seed = 3,
              .poison = true});
  set_values(lab, s.change);
  const double loss = lab.forward();
  Results results{{"output", lab.output()}};
  if (!training) return results;
  results["loss"] = {loss};
  lab.net().backward();
  for (auto& [name, gradient] : lab.gradients()) results[name] = std::move(gradient);
  return results;
}

void expect_as_in_f64(const SmallNet& net, Setting setting) {
  const Results expected = results_of(net, setting);
  std::map<std::string, double> moved;
  for (setting.change = 1; setting.change <= 6; ++setting.change)
    for (const auto& [name, values] : results_of(net, setting))
      moved[name] = std::max({moved[name], unit, relative_error(values, expected.at(name))});
  setting.change = 0;
  setting.dtype = DType::bf16;
  for (const auto& [algo, layout] : {std::pair{"implicit_gemm", Layout::nchw16c},
                                     {"winograd", Layout::nchw8c},
                                     {"im2col", Layout::nchw},
                                     {"direct", Layout::nhwc}}) {
    SCOPED_TRACE(algo);
    setting.algo = algo;
    setting.layout = layout;
    const Results got = results_of(net, setting);
    ASSERT_EQ(got.size(), expected.size());
    double most = 0;
    for (const auto& [name, values] : expected) {
      const double error = relative_error(got.at(name), values);
      EXPECT_LE(error, 4 * moved.at(name)) << name;
      most = std::max(most, error);
    }
    EXPECT_GT(most, unit / 16) << "nothing was rounded";
  }
}

class Bf16Nets : public testing::TestWithParam<SmallNet> {};
INSTANTIATE_TEST_SUITE_P(Nets, Bf16Nets, testing::ValuesIn(feed_forward_nets()),
                         [](const auto& info) { return info.param.name; });

TEST_P(Bf16Nets, TrainAsInF64) {
  for (const Loss loss : {Loss::cross_entropy, Loss::squared_error}) {
    SCOPED_TRACE(loss == Loss::cross_entropy ? "cross entropy" : "squared error");
    expect_as_in_f64(GetParam(), {.loss = loss});
  }
}

TEST_P(Bf16Nets, InferAsInF64) { expect_as_in_f64(GetParam(), {.mode = Mode::inference}); }

TEST_P(Bf16Nets, KnowTheirMemoryBeforehand) {
  const auto device = make_cpu_device({1, ""});
  const Graph graph = GetParam().make(3);
  const SgdDesc rule{.rate = 0.1, .momentum = 0.9};
  for (const Mode mode : {Mode::training, Mode::inference}) {
    const auto plan = [&](DType dtype) {
      return uniform_plan(graph, mode, dtype, "im2col", Layout::nhwc, *device);
    };
    const auto needed = [&](DType dtype) {
      return Net::memory_needed(graph, plan(dtype), cpu_algos(), *device, {}, rule);
    };
    NetLab lab(graph, plan(DType::bf16), *device);
    lab.forward();
    const Values before = lab.output();
    if (mode == Mode::inference) {
      lab.net().freeze();
      lab.forward();
      EXPECT_EQ(lab.output(), before);
    } else {
      lab.net().backward();
      lab.net().update(rule);
    }
    EXPECT_EQ(needed(DType::bf16).total, lab.net().memory().total);
    EXPECT_LT(needed(DType::bf16).activations, needed(DType::f32).activations);
    EXPECT_EQ(needed(DType::bf16).optimizer, needed(DType::f32).optimizer);
  }
}

// ---- In and out ----

// An output of several pixels, so that layouts differ.
struct Pictures {
  std::unique_ptr<Device> device = make_cpu_device({1, ""});
  Graph graph{"pictures"};
  static constexpr std::int64_t n = 2, c = 3, h = 5, w = 4, k = 7;

  Pictures() {
    input(graph, {n, c, h, w}).conv("a", {.filters = k, .kernel = 3, .pad = 1}).relu("b");
  }
  NetLab lab(Layout layout) const {
    return {graph,
            uniform_plan(graph, Mode::training, DType::bf16, "im2col", layout, *device),
            *device,
            {.loss = Loss::none, .input_gradient = true}};
  }
};

// N C H W as N H W C.
std::vector<float> channels_last(const Values& values, std::int64_t channels) {
  const std::int64_t pixels = Pictures::h * Pictures::w;
  std::vector<float> to(values.size());
  for (std::int64_t n = 0; n < Pictures::n; ++n)
    for (std::int64_t c = 0; c < channels; ++c)
      for (std::int64_t p = 0; p < pixels; ++p)
        to[std::size_t((n * pixels + p) * channels + c)] =
            float(values[std::size_t((n * channels + c) * pixels + p)]);
  return to;
}

// The caller's values are f32, in either layout, whatever the net's.
TEST(Bf16Net, TakesAndGivesF32InBothLayouts) {
  const Pictures pictures;
  const Values x = random_values(Pictures::n * Pictures::c * Pictures::h * Pictures::w, 5),
               dy = random_values(Pictures::n * Pictures::k * Pictures::h * Pictures::w, 6);
  for (const Layout layout : {Layout::nchw, Layout::nhwc, Layout::nchw16c}) {
    SCOPED_TRACE(to_string(layout));
    NetLab lab = pictures.lab(layout);
    Net& net = lab.net();
    EXPECT_EQ(net.value_type(), DType::f32);
    lab.set_input(x);
    lab.forward();
    const Values y = lab.output();
    EXPECT_EQ(y, rounded(y));
    lab.backward(dy);
    const Values dx = lab.input_gradient();

    const std::vector<float> x_last = channels_last(x, Pictures::c),
                             dy_last = channels_last(dy, Pictures::k);
    std::vector<float> y_last(dy.size()), dx_last(x.size());
    net.set_input(std::as_bytes(std::span(x_last)), Layout::nhwc);
    net.forward();
    net.read_output(std::as_writable_bytes(std::span(y_last)), Layout::nhwc);
    net.backward(std::as_bytes(std::span(dy_last)), Layout::nhwc);
    net.read_input_gradient(std::as_writable_bytes(std::span(dx_last)), Layout::nhwc);
    EXPECT_EQ(y_last, channels_last(y, Pictures::k));
    EXPECT_EQ(dx_last, channels_last(dx, Pictures::c));
    EXPECT_THROW(net.set_input(std::as_bytes(std::span(x_last)).first(x_last.size() * 2)),
                 InputError);

    const Buffer at = pictures.device->allocate(x.size() * sizeof(float));
    EXPECT_FALSE(net.place_input(at.data(), Layout::nchw)) << "that would have to be bf16";
  }
}

std::string error_of(const std::function<void()>& run) {
  try {
    run();
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Bf16Net, HasNoRecurrentLayers) {
  const auto device = make_cpu_device({1, ""});
  const Graph graph = small_net("recurrent").make(2);
  const char* const says = "recurrent layers run in f32 or f64, not bf16";
  EXPECT_NE(error_of([&] {
              choose_plan(graph, {.dtype = DType::bf16}, cpu_algos(), *device, nullptr);
            }).find(says),
            std::string::npos);
  NetPlan plan = uniform_plan(graph, Mode::training, DType::f32, "im2col", Layout::nchw, *device);
  plan.dtype = DType::bf16;
  EXPECT_NE(error_of([&] { Net(graph, plan, cpu_algos(), *device); }).find(says),
            std::string::npos);
}

// A sum over the batch in parts would be rounded after each.
TEST(Bf16Net, SumsAFiltersGradientAtOnce) {
  const auto device = make_cpu_device({1, ""});
  const Graph graph = small_net("plain").make(4);
  NetPlan plan = uniform_plan(graph, Mode::training, DType::bf16, "im2col", Layout::nchw, *device);
  for (StepPlan& step : plan.steps)
    for (const Pass pass : {Pass::forward, Pass::backward_data})
      if (auto& p = step.passes[std::size_t(pass)]) p->images = 2;
  Net(graph, plan, cpu_algos(), *device);
  for (StepPlan& step : plan.steps)
    if (auto& p = step.passes[std::size_t(Pass::backward_filter)]) p->images = 2;
  const std::string error = error_of([&] { Net(graph, plan, cpu_algos(), *device); });
  EXPECT_NE(error.find("the whole batch at once in bf16"), std::string::npos) << error;

  // Nor is one chosen, where a limit splits f32's.
  const auto has_parts = [&](DType dtype) {
    bool any = false;
    for (std::int64_t limit = 16 << 10; limit < 4 << 20; limit += limit / 4) {
      const ChooseOptions options{.dtype = dtype, .workspace_max = limit, .algos = {"fft"}};
      try {
        for (const StepPlan& step :
             choose_plan(graph, options, cpu_algos(), *device, nullptr).plan.steps)
          if (const auto& p = step.passes[std::size_t(Pass::backward_filter)])
            any |= p->images != 0;
      } catch (const InputError&) {
        continue;  // the limit is too small
      }
    }
    return any;
  };
  EXPECT_TRUE(has_parts(DType::f32));
  EXPECT_FALSE(has_parts(DType::bf16));
}

}  // namespace
}  // namespace convlab::nets
