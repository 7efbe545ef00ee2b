// Reports of `time` and `plan` for given times.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "bench/reports/nets/plan_report.h"
#include "bench/reports/nets/time_report.h"
#include "bench/reports/nets/trace.h"
#include "kernels_cpu/cpu.h"
#include "nets/plan/choose.h"
#include "nets/tensor.h"
#include "nets/zoo/zoo.h"

namespace convlab {

using namespace nets;
namespace {

using nlohmann::json;

// LeNet in training, im2col everywhere. Each pass is expected to take 1 ms and everything else
// nothing.
NetPlan lenet_plan(const ConvAlgo& im2col, Device& device) {
  NetPlan plan;
  plan.net = "lenet";
  plan.batch = 4;
  const Graph graph = make_net("lenet", 4);
  bool first = true;
  for (const Step& step : steps_of(graph, Mode::training)) {
    const Node& node = graph.nodes()[step.node];
    StepPlan planned;
    planned.layer = node.name;
    if (std::holds_alternative<Conv>(node.layer)) {
      for (const Pass pass : all_passes)
        if (pass != Pass::backward_data || !first) {
          ConvProblem problem = graph.conv_problem(node);
          problem.pass = pass;
          planned.passes[std::size_t(pass)] = PassPlan{
              .algo = "im2col", .config = im2col.configs(problem, device).front(), .ms = 1};
        }
      first = false;
    }
    plan.steps.push_back(planned);
  }
  return plan;
}

std::size_t step_named(const NetPlan& plan, const std::string& layer) {
  for (std::size_t i = 0; i < plan.steps.size(); ++i)
    if (plan.steps[i].layer == layer) return i;
  throw std::out_of_range(layer);
}

// Every phase of every step took `ms` in each of three iterations.
NetTimes even_times(const NetPlan& plan, double ms) {
  NetTimes times;
  times.iterations.assign(3, {.io = 9, .h2d = 1, .forward = 2, .backward = 3, .update = 4});
  times.steps.resize(plan.steps.size());
  for (auto& phases : times.steps)
    for (auto& samples : phases) samples.assign(3, ms);
  return times;
}

class NetReportTest : public testing::Test {
 protected:
  NetReportTest() {
    append_cpu_algos(registry_);
    plan_ = lenet_plan(registry_.get(DeviceKind::cpu, "im2col"), *device_);
  }
  std::vector<StepInfo> infos() { return describe_steps(graph_, plan_, registry_, *device_); }
  std::unique_ptr<Device> device_ = make_cpu_device({.threads = 1, .isa = {}});
  AlgoRegistry registry_;
  Graph graph_ = make_net("lenet", 4);
  NetPlan plan_;
};

TEST_F(NetReportTest, WorkIsCountedForTheWholeBatch) {
  const std::vector<StepInfo> steps = infos();
  const StepInfo& c3 = steps[step_named(plan_, "c3")];
  const double flops = 2.0 * 4 * 16 * 10 * 10 * 6 * 5 * 5;
  const double x = 4 * 6 * 14 * 14, y = 4 * 16 * 10 * 10, w = 16 * 6 * 5 * 5 + 16;
  for (const Pass pass : all_passes)
    EXPECT_EQ(c3.phases[std::size_t(pass)].eff_flops, flops) << to_string(pass);
  EXPECT_EQ(c3.phases[0].bytes, 4 * (x + w + y));
  const StepInfo& f6 = steps[step_named(plan_, "f6")];
  EXPECT_EQ(f6.phases[0].eff_flops, 2.0 * 4 * 120 * 84);
  EXPECT_EQ(f6.phases[0].bytes, 4.0 * (4 * 120 + 120 * 84 + 84 + 4 * 84));
  // The image's gradient is not needed.
  EXPECT_EQ(steps[step_named(plan_, "c1")].phases[1].eff_flops, 0);
  EXPECT_EQ(steps[step_named(plan_, "c1")].phases[1].plan, nullptr);
}

// The first of two recurrent layers gives no gradient to the input.
TEST_F(NetReportTest, AFirstRecurrentLayersDataGradientIsNotCounted) {
  RecurrentRegistry recurrent;
  append_cpu_recurrent_algos(recurrent);
  Graph graph("rnns");
  input(graph, {2, 1, 3, 40})
      .recurrent("first", {.cell = RecurrentCell::gru, .hidden = 8, .every_step = true})
      .recurrent("second", {.cell = RecurrentCell::gru, .hidden = 8})
      .linear("fc", 4);
  const double of_hidden = 2.0 * 3 * 2 * 24 * 8, x = 3 * 2 * 40, y = 3 * 2 * 8;
  for (const char* algo : {"stepwise", "batched_input"}) {
    const NetAlgos algos{registry_, recurrent};
    const NetPlan plan = choose_plan(graph, {.algos = {algo}}, algos, *device_, nullptr).plan;
    const std::vector<StepInfo> steps = describe_steps(graph, plan, algos, *device_);
    const PhaseInfo& first = steps[1].phases[1];
    const PhaseInfo& second = steps[2].phases[1];
    EXPECT_EQ(first.eff_flops, of_hidden) << algo;
    EXPECT_EQ(first.exec_flops, of_hidden) << algo;
    EXPECT_EQ(second.eff_flops, 2 * of_hidden) << algo;
    EXPECT_EQ(second.exec_flops, 2 * of_hidden) << algo;
    EXPECT_EQ(first.bytes, 4 * (y + 24 * 8 + 48)) << algo;  // dy, U and biases
    EXPECT_EQ(steps[1].phases[2].bytes, 4 * (x + y + 24 * 48 + 48)) << algo;
    EXPECT_EQ(steps[1].phases[2].eff_flops, of_hidden * 6) << algo;
  }
}

TEST_F(NetReportTest, TheLegendSaysWhatIsCounted) {
  const std::vector<StepInfo> steps = infos();
  const NetTimes times = even_times(plan_, 1);
  const auto legend = [&](const std::vector<StepInfo>& of) {
    const std::string text = render(TimedNet{graph_, plan_, of, times, {}}, Format::table);
    return text.find("as direct convolution") != std::string::npos     ? "convolution"
           : text.find("GFLOP/s of the products") != std::string::npos ? "products"
                                                                       : text;
  };
  EXPECT_EQ(legend(steps), "convolution");
  std::vector<StepInfo> others = steps;
  for (StepInfo& step : others)
    if (step.kind == "convolution") step.kind = "recurrent";
  EXPECT_EQ(legend(others), "products");
}

TEST_F(NetReportTest, ABatchInPiecesIsTheSameWork) {
  const double whole = infos()[step_named(plan_, "c3")].phases[0].exec_flops;
  plan_.steps[step_named(plan_, "c3")].passes[0]->images = 3;  // 3 and 1
  EXPECT_EQ(infos()[step_named(plan_, "c3")].phases[0].exec_flops, whole);
  EXPECT_GT(whole, 0);
}

TEST_F(NetReportTest, TotalsAreOfWholeIterationsWithoutMakingData) {
  const NetTimes times = even_times(plan_, 0.5);
  const std::vector<StepInfo> steps = infos();
  const json timed = json::parse(render(TimedNet{graph_, plan_, steps, times, {}}, Format::json));
  EXPECT_EQ(timed["iteration"]["ms"], 10);
  EXPECT_EQ(timed["iteration"]["images_per_s"], 400);
  EXPECT_EQ(timed["iteration"]["t_io"], 9);
  EXPECT_EQ(timed["iteration"]["steps_ms"], 0.5 * 4 * double(plan_.steps.size()));
  const json c3 = timed["steps"][step_named(plan_, "c3")];
  EXPECT_NEAR(c3["phases"]["fwd"]["eff_gflops"].get<double>(),
              2.0 * 4 * 16 * 10 * 10 * 6 * 5 * 5 / 0.5e6, 1e-9);
}

TEST_F(NetReportTest, OnlyWhatCannotBeNoiseIsASurprise) {
  // Every convolution pass is as expected. The rest is expected to take nothing, and is not
  // reported.
  const std::size_t c3 = step_named(plan_, "c3"), c5 = step_named(plan_, "c5");
  NetTimes times = even_times(plan_, 0.75);  // four phases where three were expected
  for (auto& phases : times.steps) EXPECT_EQ(phases.size(), 4u);
  times.steps[step_named(plan_, "c1")][1].clear();
  times.steps[step_named(plan_, "c1")][3].assign(3, 0.5);
  EXPECT_TRUE(surprises(plan_, times).empty());

  times.steps[c5][0].assign(3, 1.75);  // a millisecond more than the three it should take
  times.steps[c3][1].assign(3, 2.75);  // two more
  const std::vector<Surprise> found = surprises(plan_, times);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].step, c3);
  EXPECT_EQ(found[0].expected_ms, 3);
  EXPECT_EQ(found[0].measured_ms, 5);
  EXPECT_EQ(found[1].step, c5);

  times.steps[c3][1] = {0.75, 2.75, 4.75};  // the same median, but too uncertain
  EXPECT_EQ(surprises(plan_, times).size(), 1u);
}

TEST_F(NetReportTest, IterationsThatSpreadFarAreNamed) {
  NetTimes times = even_times(plan_, 1);
  EXPECT_EQ(unrest(times), "");
  times.iterations[0].forward += 3;  // totals of 10, 13 and 16
  times.iterations[1].forward += 6;
  EXPECT_EQ(times.iteration_ms(), 13);
  const std::vector<StepInfo> steps = infos();
  const std::string text = render(TimedNet{graph_, plan_, steps, times, {}}, Format::table);
  EXPECT_NE(text.find("spread by 23%"), std::string::npos) << text;
}

TEST_F(NetReportTest, ThePlanFormatOfJsonIsThePlan) {
  const std::vector<StepInfo> steps = infos();
  const std::string text = render(PlannedReport{graph_, plan_, steps, {}, {}, {}}, Format::json);
  EXPECT_EQ(to_json(plan_from_json(text, "text")), to_json(plan_));
}

}  // namespace
}  // namespace convlab
