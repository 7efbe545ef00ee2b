// Twenty training steps of small versions of every family of nets against PyTorch: the loss of each
// step and the final running statistics, from the file that pytorch/training.py wrote.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "kernels_cpu/cpu.h"
#include "nets/plan/choose.h"
#include "nets/train/optimizer.h"
#include "tests/nets/net_lab.h"
#include "tests/nets/pytorch_files.h"

namespace convlab::nets {
namespace {

constexpr int steps = 20;

// The rules in training.py; the file has their rates.
const std::map<std::string, UpdateRule>& rules() {
  static const std::map<std::string, UpdateRule> rules{
      {"sgd", SgdDesc{.momentum = 0.9, .weight_decay = 0.01}},
      {"adam", AdamDesc{.weight_decay = 0.01}}};
  return rules;
}

// The learning rate, and PyTorch's own deviation due to rounding (see training.py).
struct Course {
  double rate = 0;
  int f32_steps = 0;
  double f32_error = 0, f64_error = 0;
};

Course course_of(const ArrayFile& file, const std::string& key) {
  std::istringstream text(file.metadata.at(key));
  Course r;
  text >> r.rate >> r.f32_steps >> r.f32_error >> r.f64_error;
  EXPECT_FALSE(text.fail()) << key;
  return r;
}

// The images, and after them the same with every row reversed.
Values with_mirrored(const Values& x, std::int64_t width) {
  Values both = x;
  both.insert(both.end(), x.begin(), x.end());
  for (auto row = both.begin() + std::ptrdiff_t(x.size()); row != both.end(); row += width)
    std::reverse(row, row + width);
  return both;
}

void set_answers(NetLab& lab, const ArrayFile& file, int step) {
  if (pytorch_loss(file) == Loss::squared_error) {
    Values targets = values_of(file.at("targets"));
    for (double& t : targets) t *= step % 2 == 0 ? 1 : -1;
    targets.insert(targets.end(), targets.begin(), targets.end());
    return lab.set_targets(targets);
  }
  const std::int64_t classes = lab.net().graph().nodes().back().shape.c;
  std::vector<std::int32_t> labels;
  for (const int rise : {1, 2})
    for (const double label : values_of(file.at("labels")))
      labels.push_back(std::int32_t((std::int64_t(label) + rise * step) % classes));
  lab.net().set_labels(labels);
  lab.net().stream().synchronize();
}

// The losses, and the running statistics after the last step.
std::map<std::string, Values> train(const std::string& name, const UpdateRule& rule, DType dtype) {
  const ArrayFile file = read_pytorch(name);
  const std::vector<std::int64_t>& shape = file.at("input").shape;
  const Graph graph = pytorch_graph(name, file, 2 * shape[0]);
  const auto device = make_cpu_device();
  const NetPlan plan = choose_plan(graph, {.dtype = dtype}, cpu_algos(), *device, nullptr).plan;
  NetLab lab(graph, plan, *device, {.loss = pytorch_loss(file)});
  for (const Parameter& p : lab.net().parameters())
    lab.write(p.value, values_of(file.at("value/" + p.name)));
  lab.set_input(with_mirrored(values_of(file.at("input")), shape.back()));
  std::map<std::string, Values> results;
  for (int step = 0; step < steps; ++step) {
    set_answers(lab, file, step);
    results["losses"].push_back(lab.forward());
    lab.net().backward();
    lab.net().update(rule);
  }
  for (const Parameter& p : lab.net().parameters())
    if (p.gradient == nullptr) results["after/" + p.name] = lab.read(p.value, p.count);
  return results;
}

class PyTorchTraining : public testing::TestWithParam<std::string> {};

TEST_P(PyTorchTraining, TwentyStepsAreTheSame) {
  const std::string& name = GetParam();
  static const ArrayFile file = read_pytorch("training");
  for (const auto& [rule_name, rule] : rules()) {
    const std::string prefix = name + "/" + rule_name;
    const Course course = course_of(file, prefix);
    const std::ptrdiff_t given =
        std::count_if(file.arrays.begin(), file.arrays.end(),
                      [&](const auto& array) { return array.first.starts_with(prefix + "/"); });

    // PyTorch's deviation comes from an ulp of noise in the input, which is less than the rounding
    // of all layers.
    auto results = train(name, with_rate(rule, course.rate), DType::f64);
    EXPECT_EQ(std::ptrdiff_t(results.size()), given) << prefix;
    for (const auto& [key, ours] : results)
      EXPECT_LE(relative_error(ours, values_of(file.at(prefix + "/" + key))),
                1e-13 + 1000 * course.f64_error)
          << prefix << " " << key;

    results = train(name, with_rate(rule, course.rate), DType::f32);
    Values theirs = values_of(file.at(prefix + "/losses"));
    for (Values* losses : {&theirs, &results["losses"]})
      losses->resize(std::size_t(course.f32_steps));
    EXPECT_LE(relative_error(results["losses"], theirs), 20 * course.f32_error) << prefix;
    if (course.f32_steps < steps) continue;
    for (const auto& [key, ours] : results)
      EXPECT_LE(relative_error(ours, values_of(file.at(prefix + "/" + key))), 20 * course.f32_error)
          << prefix << " " << key;
  }
}

INSTANTIATE_TEST_SUITE_P(Nets, PyTorchTraining, testing::ValuesIn(pytorch_nets()),
                         [](const auto& info) { return test_name(info.param); });

}  // namespace
}  // namespace convlab::nets
