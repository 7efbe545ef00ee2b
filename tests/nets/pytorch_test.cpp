// Small versions of every family of nets against PyTorch: outputs, losses, all gradients, running
// statistics and updated weights, from the files that pytorch/generate.py wrote.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <fstream>
#include <numeric>

#include "conv/error.h"
#include "kernels_cpu/cpu.h"
#include "nets/plan/choose.h"
#include "tests/nets/net_lab.h"
#include "tests/nets/pytorch_files.h"

namespace convlab::nets {
namespace {

// The rules in generate.py.
const std::map<std::string, UpdateRule>& update_rules() {
  static const std::map<std::string, UpdateRule> rules{
      {"sgd", SgdDesc{.rate = 0.1, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true}},
      {"adam", AdamDesc{.rate = 0.01, .weight_decay = 0.01}},
      {"adamw", AdamDesc{.rate = 0.01, .weight_decay = 0.1, .decoupled = true}}};
  return rules;
}

// How a net is run: with one algorithm and layout wherever they fit, or with the chooser's plan,
// which leaves out the input's gradient.
struct Setting {
  std::string algo;
  DType dtype;
  Layout layout = Layout::nchw;
};

std::string to_string(const Setting& s) {
  return fmt::format("{}, {}, {}", s.algo, to_string(s.dtype), to_string(s.layout));
}

NetPlan plan_of(const Graph& graph, Mode mode, const Setting& s, Device& device) {
  if (s.algo == "chosen")
    return choose_plan(graph, {.mode = mode, .dtype = s.dtype}, cpu_algos(), device, nullptr).plan;
  return uniform_plan(graph, mode, s.dtype, s.algo, s.layout, device);
}

// A net with a file's values; its results have the file's keys.
class PyTorchNet {
 public:
  PyTorchNet(const std::string& name, const ArrayFile& file, Mode mode, const Setting& setting)
      : file_(file),
        device_(make_cpu_device()),
        lab_(pytorch_graph(name, file), plan_of(pytorch_graph(name, file), mode, setting, *device_),
             *device_,
             {.loss = mode == Mode::training ? pytorch_loss(file) : Loss::none,
              .input_gradient = mode == Mode::training && setting.algo != "chosen"}) {
    for (const Parameter& p : lab_.net().parameters()) {
      const Array& value = file.at("value/" + p.name);
      EXPECT_EQ(p.shape, value.shape) << p.name;
      lab_.write(p.value, values_of(value));
    }
    lab_.net().parameters_changed();
    lab_.set_input(values_of(file.at("input")));
    if (mode == Mode::inference) return;
    if (pytorch_loss(file) == Loss::cross_entropy) {
      const Values labels = values_of(file.at("labels"));
      lab_.net().set_labels(std::vector<std::int32_t>(labels.begin(), labels.end()));
    } else {
      lab_.set_targets(values_of(file.at("targets")));
    }
  }

  NetLab& lab() { return lab_; }

  std::map<std::string, Values> infer() {
    lab_.forward();
    return {{"inference/output", lab_.output()}};
  }

  std::map<std::string, Values> train() {
    const double loss = lab_.forward();
    std::map<std::string, Values> results{{"training/loss", {loss}},
                                          {"training/output", lab_.output()}};
    lab_.net().backward();
    for (auto& [name, gradient] : lab_.gradients()) results["gradient/" + name] = gradient;
    for (const Parameter& p : lab_.net().parameters())
      if (p.gradient == nullptr) results["after/" + p.name] = lab_.read(p.value, p.count);
    if (file_.metadata.at("update").empty()) return results;
    const UpdateRule& rule = update_rules().at(file_.metadata.at("update"));
    lab_.net().update(rule);
    lab_.forward();
    lab_.net().backward();
    lab_.net().update(rule);
    for (const Parameter& p : lab_.net().parameters())
      results["updated/" + p.name] = lab_.read(p.value, p.count);
    return results;
  }

 private:
  const ArrayFile& file_;
  std::unique_ptr<Device> device_;
  NetLab lab_;
};

double norm(const Values& values) {
  return std::sqrt(std::inner_product(values.begin(), values.end(), values.begin(), 0.0));
}

// ours - PyTorch's|| / ||PyTorch's|| of each result. If a gradient is zero (a bias that batch norm
// cancels), its error is relative to all gradients together.
std::map<std::string, double> errors(const std::map<std::string, Values>& results,
                                     const ArrayFile& file) {
  double squares = 0;
  for (const auto& [key, array] : file.arrays)
    if (key.rfind("gradient/", 0) == 0) squares += std::pow(norm(values_of(array)), 2);
  std::map<std::string, double> errors;
  for (const auto& [key, ours] : results) {
    const Values theirs = values_of(file.at(key));
    EXPECT_EQ(ours.size(), theirs.size()) << key;
    const double error = relative_error(ours, theirs);
    errors[key] = norm(theirs) > 0 ? error : error / std::sqrt(squares);
  }
  return errors;
}

std::size_t keys_beginning(const ArrayFile& file, const std::string& prefix) {
  std::size_t count = 0;
  for (const auto& [key, array] : file.arrays) count += key.rfind(prefix, 0) == 0;
  return count;
}

// A file's own rounding to f32 is up to 6e-8. The error in f32 depends on the net's conditioning,
// which PyTorch's own error in f32 measures; Winograd may lose a further digit.
double tolerance(DType dtype, const ArrayFile& file) {
  return dtype == DType::f64 ? 2e-7 : 20 * std::stod(file.metadata.at("f32_error"));
}

const std::vector<Setting> settings{
    {"direct", DType::f64, Layout::nchw},
    {"chosen", DType::f64},
    {"chosen", DType::f32},
    {"direct", DType::f32, Layout::nchw},
    {"direct", DType::f32, Layout::nchw16c},
    {"direct", DType::f32, Layout::nchw8c},
    {"implicit_gemm", DType::f32, Layout::nhwc},
    {"im2col", DType::f32, Layout::nchw},
    {"winograd", DType::f32, Layout::nchw16c},
    {"fft", DType::f32, Layout::nchw},
};

class PyTorch : public testing::TestWithParam<std::string> {};

TEST_P(PyTorch, ComputesTheSame) {
  const ArrayFile file = read_pytorch(GetParam());
  EXPECT_EQ(file.metadata.at("net"), GetParam());
  for (const Setting& setting : settings) {
    SCOPED_TRACE(to_string(setting));
    auto results = PyTorchNet(GetParam(), file, Mode::inference, setting).infer();
    results.merge(PyTorchNet(GetParam(), file, Mode::training, setting).train());
    // No other result of PyTorch is left out.
    const std::size_t given = keys_beginning(file, "value/") + 2;  // net inputs: input, labels
    EXPECT_EQ(results.size(), file.arrays.size() - given - (setting.algo == "chosen"));
    for (const auto& [key, error] : errors(results, file))
      EXPECT_LE(error, tolerance(setting.dtype, file)) << key;
  }
}

INSTANTIATE_TEST_SUITE_P(Nets, PyTorch, testing::ValuesIn(pytorch_nets()),
                         [](const auto& info) { return test_name(info.param); });

// One weight that is off by a thousandth of the filter's norm shows in the results after it.
TEST(PyTorchComparison, SeesAWrongWeight) {
  const ArrayFile file = read_pytorch("resnet8");
  PyTorchNet net("resnet8", file, Mode::training, settings[0]);
  const Parameter& filter = net.lab().parameter("layer2.0.conv1.weight");
  Values values = net.lab().read(filter.value, filter.count);
  values[7] += 1e-3 * norm(values);
  net.lab().write(filter.value, values);
  net.lab().net().parameters_changed();
  const auto errors_now = errors(net.train(), file);
  for (const char* key :
       {"training/loss", "training/output", "gradient/layer2.0.conv1.weight", "gradient/input",
        "gradient/fc.weight", "after/layer2.0.bn1.running_mean"})
    EXPECT_GT(errors_now.at(key), tolerance(DType::f64, file)) << key;
  EXPECT_LE(errors_now.at("after/layer1.0.bn1.running_mean"), tolerance(DType::f64, file));
}

TEST(PyTorchComparison, SeesAWrongLabel) {
  ArrayFile file = read_pytorch("lenet");
  Array& array = file.arrays.at("labels");
  Values labels = values_of(array);
  labels[1] = labels[1] == 0 ? 1 : 0;
  array = array_of(array.type, array.shape, labels);
  PyTorchNet net("lenet", file, Mode::training, settings[0]);
  const auto errors_now = errors(net.train(), file);
  EXPECT_LE(errors_now.at("training/output"), tolerance(DType::f64, file));
  EXPECT_GT(errors_now.at("training/loss"), 1e-3);
  EXPECT_GT(errors_now.at("gradient/output.bias"), 1e-3);
}

}  // namespace
}  // namespace convlab::nets
