// A net computes the same whether its input, output, parameters and gradients are in its own memory
// or in the caller's, in NCHW or NHWC.
#include <gtest/gtest.h>

#include <cstring>

#include "conv/error.h"
#include "kernels_cpu/cpu.h"
#include "nets/net.h"
#include "nets/run/step_work.h"
#include "nets/tensor.h"
#include "tests/nets/net_lab.h"

namespace convlab::nets {
namespace {

class Placing : public testing::TestWithParam<SmallNet> {
 protected:
  // With an element's place in this layout; f64.
  Buffer in(Layout layout, const Values& nchw, const Shape& shape) const {
    const TensorDesc from = tensor_desc(shape, Layout::nchw), to = tensor_desc(shape, layout);
    Buffer memory = device_->allocate(nchw.size() * sizeof(double));
    for_each(shape, [&](auto... at) {
      memory.as<double>()[to.offset(at...)] = nchw[std::size_t(from.offset(at...))];
    });
    return memory;
  }
  static Values from(Layout layout, const Buffer& memory, const Shape& shape) {
    const TensorDesc from = tensor_desc(shape, layout), to = tensor_desc(shape, Layout::nchw);
    Values nchw(std::size_t(shape.elements()));
    for_each(shape, [&](auto... at) {
      nchw[std::size_t(to.offset(at...))] = memory.as<double>()[from.offset(at...)];
    });
    return nchw;
  }
  template <class F>
  static void for_each(const Shape& s, F f) {
    for (std::int64_t n = 0; n < s.n; ++n)
      for (std::int64_t c = 0; c < s.c; ++c)
        for (std::int64_t h = 0; h < s.d * s.h; ++h)
          for (std::int64_t w = 0; w < s.w; ++w) f(n, c, h, w);
  }

  NetPlan plan(const Graph& graph, Mode mode, Layout input) const {
    NetPlan plan = uniform_plan(graph, mode, DType::f64, "im2col", Layout::nhwc, *device_);
    plan.steps.front().y_layout = input;
    return plan;
  }

  // In memory of the test, which is returned.
  std::vector<Buffer> place_parameters(Net& net) const {
    std::vector<Buffer> all;
    for (std::size_t i = 0; i < net.parameters().size(); ++i) {
      const Parameter before = net.parameters()[i];
      const std::size_t bytes = std::size_t(before.count) * sizeof(double);
      Buffer memory = device_->allocate(bytes);
      std::memcpy(memory.data(), before.value, bytes);
      try {
        net.place_parameter(i, memory.data());
      } catch (const InputError&) {  // a recurrent layer's block
        EXPECT_EQ(net.parameters()[i].value, before.value);
        continue;
      }
      EXPECT_EQ(net.parameters()[i].value, memory.data());
      all.push_back(std::move(memory));
    }
    return all;
  }

  std::unique_ptr<Device> device_ = make_cpu_device({2, ""});
};

INSTANTIATE_TEST_SUITE_P(Nets, Placing, testing::ValuesIn(small_nets()),
                         [](const auto& info) { return info.param.name; });

TEST_P(Placing, InferenceIsTheSame) {
  const Graph graph = GetParam().make(3);
  const Shape &x = graph.nodes().front().shape, &y = graph.nodes().back().shape;
  NetLab expected(graph, plan(graph, Mode::inference, Layout::nchw), *device_);
  for (const Layout layout : {Layout::nchw, Layout::nhwc}) {
    NetLab lab(graph, plan(graph, Mode::inference, layout), *device_);
    Net& net = lab.net();
    const std::vector<Buffer> parameters = place_parameters(net);
    std::vector<Buffer> inputs;
    for (const std::uint64_t seed : {5, 6}) {
      const Values values = random_values(x.elements(), seed);
      expected.set_input(values);
      expected.forward();
      inputs.push_back(in(layout, values, x));
      EXPECT_TRUE(net.place_input(inputs.back().data(), layout));
      net.forward();
      EXPECT_LT(relative_error(lab.output(), expected.output()), 1e-13);
      for (const Layout read : {Layout::nchw, Layout::nhwc}) {
        const Buffer out = in(read, Values(std::size_t(y.elements()), 7.0), y);
        const bool placed = net.place_output(out.data(), read);
        net.forward();
        if (!placed) net.read_output(out.span(), read);
        EXPECT_LT(relative_error(from(read, out, y), expected.output()), 1e-13);
        net.place_output(nullptr, read);
      }
      // Back in the net's own memory, from either layout.
      for (const Layout given : {Layout::nchw, Layout::nhwc}) {
        net.set_input(in(given, values, x).span(), given);
        net.forward();
        EXPECT_LT(relative_error(lab.output(), expected.output()), 1e-13);
      }
    }
  }
}

TEST_P(Placing, TrainingIsTheSame) {
  const Graph graph = GetParam().make(3);
  const Shape &x = graph.nodes().front().shape, &y = graph.nodes().back().shape;
  const NetOptions options{.loss = Loss::none, .input_gradient = true};
  for (const Layout layout : {Layout::nchw, Layout::nhwc}) {
    NetLab expected(graph, plan(graph, Mode::training, Layout::nchw), *device_, options);
    NetLab lab(graph, plan(graph, Mode::training, layout), *device_, options);
    Net& net = lab.net();
    const std::vector<Buffer> parameters = place_parameters(net);
    std::vector<Buffer> kept;
    for (const std::uint64_t seed : {5, 6}) {
      const Values values = random_values(x.elements(), seed);
      const Values dy = random_values(y.elements(), seed + 10);
      expected.set_input(values);
      expected.forward();
      expected.backward(dy);

      kept.push_back(device_->allocate(net.gradients().size()));
      std::memset(kept.back().data(), 0, kept.back().bytes());
      net.place_gradients(kept.back().span());
      kept.push_back(in(layout, values, x));
      ASSERT_TRUE(net.place_input(kept.back().data(), layout));
      kept.push_back(device_->allocate(std::size_t(y.elements()) * sizeof(double)));
      const bool placed =
          !net.backward_reads_output() && net.place_output(kept.back().data(), layout);
      net.forward();
      if (!placed) net.read_output(kept.back().span(), layout);
      EXPECT_LT(relative_error(from(layout, kept.back(), y), expected.output()), 1e-13);
      // What backward does not read may change.
      if (placed) std::memset(kept.back().data(), 0xFF, kept.back().bytes());
      net.backward(in(layout, dy, y).span(), layout);

      const auto got = lab.gradients();
      for (const auto& [name, gradient] : expected.gradients())
        EXPECT_LT(relative_error(got.at(name), gradient), 1e-11) << name;
      const Buffer dx = device_->allocate(std::size_t(x.elements()) * sizeof(double));
      net.read_input_gradient(dx.span(), layout);
      EXPECT_LT(relative_error(from(layout, dx, x), expected.input_gradient()), 1e-11);
      for (const Parameter& p : expected.net().parameters())
        EXPECT_LT(relative_error(lab.read(lab.parameter(p.name).value, p.count),
                                 expected.read(p.value, p.count)),
                  1e-12)
            << p.name;
    }
  }
}

TEST(PlacingUse, WhatCannotBeIsSaid) {
  const auto device = make_cpu_device({2, ""});
  Graph graph("image to image");
  input(graph, {2, 3, 5, 4}).conv("a", {.filters = 5, .kernel = 3, .pad = 1});
  const auto make = [&](Mode mode) {
    return std::make_unique<Net>(
        graph, uniform_plan(graph, mode, DType::f32, "im2col", Layout::nchw, *device), cpu_algos(),
        *device, NetOptions{.loss = Loss::none});
  };
  const auto net = make(Mode::inference);
  const Buffer memory = device->allocate(1 << 12);
  EXPECT_FALSE(net->place_input(memory.data(), Layout::nhwc));  // the plan has nchw
  EXPECT_THROW(net->forward(), InputError);                     // there is no input now
  EXPECT_FALSE(net->place_input(memory.data() + 4, Layout::nchw));
  EXPECT_FALSE(net->place_input(nullptr, Layout::nchw));
  EXPECT_THROW(net->place_input(memory.data(), Layout::nchw8c), InputError);
  EXPECT_THROW(net->set_input(memory.span().first(2 * 3 * 5 * 4 * 4), Layout::nchw8c), InputError);
  EXPECT_TRUE(net->place_input(memory.data(), Layout::nchw));
  EXPECT_TRUE(net->place_output(memory.data() + 1024, Layout::nchw));
  EXPECT_THROW(net->place_parameter(2, memory.data()), InputError);
  EXPECT_THROW(net->place_gradients({}), InputError);
  net->freeze();
  EXPECT_THROW(net->place_parameter(0, memory.data()), InputError);
  const auto training = make(Mode::training);
  EXPECT_THROW(training->place_gradients(memory.span().first(8)), InputError);
}

}  // namespace
}  // namespace convlab::nets
