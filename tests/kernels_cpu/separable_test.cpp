// Depthwise separable convolutions against the reference of one convolution after the other.
#include "kernels_cpu/separable/separable.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "conv/reference.h"
#include "conv/refusals.h"
#include "kernels_cpu/cpu.h"
#include "tests/kernels_cpu/isas.h"

namespace convlab {
namespace {

// Small integers: all sums are exact in f32, so that results are equal unless the activation
// rounds.
std::vector<double> integers(std::int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<int> values(-2, 2);
  std::vector<double> v(static_cast<std::size_t>(count));
  for (double& x : v) x = values(random);
  return v;
}

std::vector<float> floats(const std::vector<double>& v) { return {v.begin(), v.end()}; }

// A plain NCHW tensor in another layout; padding lanes are 0.
std::vector<float> in_layout(const std::vector<double>& plain, const TensorDesc& t) {
  std::vector<float> values(std::size_t(t.elements()), 0.0F);
  std::size_t i = 0;
  for (std::int64_t n = 0; n < t.n; ++n)
    for (std::int64_t c = 0; c < t.c; ++c)
      for (std::int64_t h = 0; h < t.h; ++h)
        for (std::int64_t w = 0; w < t.w; ++w)
          values[std::size_t(t.offset(n, c, h, w))] = float(plain[i++]);
  return values;
}

// `depthwise` in benchdnn's text, and then a pointwise convolution to so many filters.
SeparableProblem problem_of(const std::string& depthwise, std::int64_t filters, Layout layout) {
  SeparableProblem s;
  s.depthwise = parse_problem(depthwise).problem;
  s.depthwise.x_layout = s.depthwise.y_layout = layout;
  const ConvProblem& d = s.depthwise;
  ConvProblem& p = s.pointwise;
  p.n = d.n;
  p.c = d.k;
  p.k = filters;
  p.h = p.p = d.p;
  p.w = p.q = d.q;
  p.x_layout = p.y_layout = layout;
  return s;
}

// Each buffer has exactly the size that the plan requires. What the plan must not read is NaN.
void expect_right(const SeparableProblem& s, Device& device, const DeviceInfo& info) {
  const ConvProblem &d = s.depthwise, &p = s.pointwise;
  const auto x = integers(d.n * d.c * d.h * d.w, 1), w = integers(d.filter_elements(), 2),
             bias = integers(d.k, 3), v = integers(p.filter_elements(), 4),
             second_bias = integers(p.k, 5), residual = integers(p.n * p.k * p.p * p.q, 6);
  const auto plain = [](ConvProblem problem) {
    problem.x_layout = problem.y_layout = Layout::nchw;
    return problem;
  };
  const std::vector<double> z =
      reference_of(plain(d), {.x = x, .w = w, .bias = bias}, all_outputs(plain(d)));
  const std::vector<double> expected = reference_of(
      plain(p), {.x = z, .w = v, .bias = second_bias, .residual = residual}, all_outputs(plain(p)));

  ASSERT_FALSE(cpu::refuse_separable(s, info)) << cpu::refuse_separable(s, info)->reason();
  const auto plan = cpu::plan_separable(s, info);
  const auto stream = device.make_stream();
  const auto x_values = in_layout(x, d.x_desc()), residual_values = in_layout(residual, p.y_desc());
  const auto w_values = floats(w), v_values = floats(v), bias_values = floats(bias),
             second_values = floats(second_bias);
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  const auto garbage = [&](std::size_t bytes) {
    Buffer buffer = device.allocate(bytes);
    std::fill_n(buffer.as<float>(), bytes / sizeof(float), nan);
    return buffer;
  };
  const Buffer packed = garbage(plan->packed_filter_bytes());
  const Buffer workspace = garbage(plan->workspace_bytes());
  plan->pack_filters(std::as_bytes(std::span(w_values)), std::as_bytes(std::span(v_values)),
                     packed.span(), *stream);
  std::vector<float> y(std::size_t(p.y_desc().elements()), nan);
  plan->run({.x = x_values.data(),
             .packed = packed.data(),
             .depthwise_bias = bias_values.data(),
             .pointwise_bias = second_values.data(),
             .residual = residual_values.data(),
             .out = y.data()},
            workspace.span(), *stream);

  const auto rounds = [](const ConvProblem& problem) {
    const std::optional<ActivationKind> kind = problem.epilogue.activation;
    return kind && *kind != ActivationKind::relu && *kind != ActivationKind::relu6;
  };
  const bool exact = !rounds(d) && !rounds(p);
  double scale = 1;
  for (const double value : expected) scale = std::max(scale, std::abs(value));
  const std::vector<float> wanted = in_layout(expected, p.y_desc());
  for (std::size_t i = 0; i < y.size(); ++i)
    ASSERT_NEAR(y[i], wanted[i], exact ? 0 : 1e-6 * scale) << "element " << i;
}

class Separable : public testing::TestWithParam<std::string> {
 protected:
  // In nhwc and blocked, with and without all that an epilogue may have, on so many threads and
  // with blocks of rows that are cut for a usual and for a tiny L2.
  void check(const std::string& depthwise, std::int64_t filters,
             std::optional<ActivationKind> activation = ActivationKind::relu6,
             std::optional<ActivationKind> last = ActivationKind::relu) {
    for (const int threads : {1, 3}) {
      const auto device = make_cpu_device({.threads = threads, .isa = GetParam()});
      DeviceInfo info = device->info();
      for (const Layout layout : {Layout::nhwc, blocked_layout(info)})
        for (const std::int64_t l2 : {info.l2_bytes, std::int64_t{1} << 10})
          for (const bool epilogue : {false, true}) {
            info.l2_bytes = l2;
            SeparableProblem s = problem_of(depthwise, filters, layout);
            s.depthwise.epilogue = {.bias = epilogue, .activation = activation};
            if (epilogue) s.pointwise.epilogue = {true, true, last};
            SCOPED_TRACE(fmt::format("{} to {}, {}, {} threads, {}, L2 {}, epilogue {}", depthwise,
                                     filters, GetParam(), threads, to_string(layout), l2,
                                     epilogue));
            expect_right(s, *device, info);
          }
    }
  }
};

TEST_P(Separable, TakesFiltersStridesAndDilations) {
  for (const char* text : {"g32mb2ic32ih14oc32kh3ph1", "g32mb1ic32ih15oc32kh3ph1sh2",
                           "g16mb3ic16ih9oc16kh5ph2", "g16mb1ic16ih16oc16kh7ph3sh2",
                           "g16mb1ic16ih12oc16kh3ph2dh1", "g16mb2ic16ih5iw30oc16kh3kw5ph1pw2sh1sw3",
                           "g48mb1ic48ih1iw20oc48kh1kw3ph0pw1", "g32mb1ic32ih8oc32oh8kh4ph1"})
    check(text, 32);
}

TEST_P(Separable, TakesPartsOfChannelBlocks) {
  for (const int channels : {2, 7, 15, 17, 24, 40})
    for (const int filters : {1, 5, 16, 24, 33, 70})
      check(fmt::format("g{0}mb2ic{0}ih6iw5oc{0}kh3ph1", channels), filters);
}

// Depths of more than one chunk of the product, and several panels.
TEST_P(Separable, TakesManyChannels) {
  for (const int channels : {528, 960})
    check(fmt::format("g{0}mb2ic{0}ih7oc{0}kh3ph1", channels), 160);
}

TEST_P(Separable, TakesActivations) {
  check("g20mb2ic20ih9oc20kh3ph1", 24, {}, {});
  for (const ActivationKind kind : all_activations)
    if (keeps_zero(kind)) {
      check("g20mb2ic20ih9oc20kh3ph1", 24, kind);
      check("g20mb2ic20ih9oc20kh3ph1", 24, ActivationKind::relu6, kind);
    }
}

INSTANTIATE_TEST_SUITE_P(Isas, Separable, testing::ValuesIn(isas()));

TEST(SeparableRefusal, NamesWhatDoesNotFit) {
  const auto device = make_cpu_device({1, ""});
  const DeviceInfo& info = device->info();
  const auto expect = [&](Field field, const auto& change) {
    SeparableProblem s = problem_of("g16mb1ic16ih8oc16kh3ph1", 8, blocked_layout(info));
    EXPECT_FALSE(cpu::refuse_separable(s, info));
    change(s);
    const auto refusal = cpu::refuse_separable(s, info);
    ASSERT_TRUE(refusal);
    EXPECT_EQ(refusal->field, field) << refusal->reason();
  };
  expect(Field::dtype, [](auto& s) { s.depthwise.dtype = s.pointwise.dtype = DType::f64; });
  expect(Field::pass, [](auto& s) { s.pointwise.pass = Pass::backward_data; });
  expect(Field::groups, [](auto& s) { s.depthwise.groups = 4; });
  expect(Field::groups, [](auto& s) { s.pointwise.groups = 2; });
  expect(Field::filter, [](auto& s) { s.depthwise.r = s.depthwise.s = 1; });
  expect(Field::filter, [](auto& s) { s.pointwise.r = 3; });
  expect(Field::size, [](auto& s) { s.pointwise.h = s.pointwise.p = 7; });
  expect(Field::layout, [](auto& s) { s.pointwise.y_layout = Layout::nhwc; });
  expect(Field::layout,
         [](auto& s) { s.depthwise.x_layout = s.depthwise.y_layout = Layout::nchw; });
  expect(Field::epilogue,
         [](auto& s) { s.depthwise.epilogue.activation = ActivationKind::sigmoid; });
  expect(Field::epilogue,
         [](auto& s) { s.pointwise.epilogue.activation = ActivationKind::hardsigmoid; });
  expect(Field::epilogue, [](auto& s) { s.depthwise.epilogue.residual = true; });
}

}  // namespace
}  // namespace convlab
