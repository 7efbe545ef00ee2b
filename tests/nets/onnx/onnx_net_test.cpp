// ONNX models as whole nets: what ONNX Runtime computes (generate_nets.py), and what is refused.
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>
#include <onnx/onnx_pb.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>

#include "conv/error.h"
#include "kernels_cpu/cpu.h"
#include "nets/onnx/net.h"
#include "nets/weights/weights.h"
#include "tests/nets/net_lab.h"

namespace convlab::nets {
namespace {

namespace fs = std::filesystem;

const std::string data = CONVLAB_ONNX_DATA;

std::string error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const InputError& e) {
    return e.what();
  }
  return "";
}

void softmax(Values& scores, std::int64_t classes) {
  for (auto row = scores.begin(); row != scores.end(); row += classes) {
    double sum = 0;
    for (auto v = row; v != row + classes; ++v) sum += * v = std::exp(*v);
    for (auto v = row; v != row + classes; ++v) *v /= sum;
  }
}

onnx::ModelProto model_of(const std::string& name) {
  onnx::ModelProto model;
  std::ifstream file(data + "/" + name + ".onnx", std::ios::binary);
  EXPECT_TRUE(model.ParseFromIstream(&file)) << name;
  return model;
}

OnnxNet decoded(const onnx::ModelProto& model, const OnnxSizes& sizes = {}) {
  const std::string bytes = model.SerializeAsString();
  return decode_onnx_net({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()}, "m",
                         sizes);
}

// What is said of a stored model after a change, by its graph or its weights.
std::string error_after(const std::string& name,
                        const std::function<void(onnx::GraphProto&)>& change) {
  onnx::ModelProto model = model_of(name);
  change(*model.mutable_graph());
  return error_of([&] { decoded(model).weights(); });
}

onnx::NodeProto& node_of(onnx::GraphProto& graph, const std::string& name) {
  for (onnx::NodeProto& node : *graph.mutable_node())
    if (node.name() == name) return node;
  throw std::logic_error("no node " + name);
}

// The second input of a node, a tensor of the graph.
onnx::TensorProto& weight_of(onnx::GraphProto& graph, const std::string& name, int input = 1) {
  for (onnx::TensorProto& tensor : *graph.mutable_initializer())
    if (tensor.name() == node_of(graph, name).input(input)) return tensor;
  throw std::logic_error("no weight of " + name);
}

void set_int(onnx::NodeProto& node, const char* name, std::int64_t value) {
  for (onnx::AttributeProto& a : *node.mutable_attribute())
    if (a.name() == name) return a.set_i(value);
  onnx::AttributeProto& a = *node.add_attribute();
  a.set_name(name);
  a.set_type(onnx::AttributeProto::INT);
  a.set_i(value);
}

void set_first(onnx::NodeProto& node, const char* name, std::int64_t value) {
  for (onnx::AttributeProto& a : *node.mutable_attribute())
    if (a.name() == name) a.set_ints(0, value);
}

class OnnxNets : public testing::TestWithParam<const char*> {};

TEST_P(OnnxNets, ComputeWhatOnnxRuntimeComputes) {
  const std::string file = data + "/" + GetParam() + ".onnx";
  const ArrayFile io = read_arrays(data + "/" + GetParam() + ".npz");
  const Array &x = io.at("x"), &y = io.at("y");
  const OnnxNet model = read_onnx_net(file, {{}, x.shape.front()});
  const std::unique_ptr<Device> device = make_cpu_device();
  const NetPlan plan =
      uniform_plan(model.graph(), Mode::inference, DType::f64, "direct", Layout::nchw, *device);
  NetLab lab(model.graph(), plan, *device, {.loss = Loss::none});
  load_weights(lab.net(), model.weights(), file);
  Values input = values_of(x);
  if (GetParam() == std::string("row")) {  // N H W C there
    const auto n = x.shape[0], h = x.shape[1], w = x.shape[2], c = x.shape[3];
    for (std::int64_t i = 0; i < n * c * h * w; ++i)
      input[std::size_t(i)] =
          values_of(x)[std::size_t((i / (c * h * w) * h * w + i % (h * w)) * c + i / (h * w) % c)];
  }
  lab.set_input(input);
  lab.net().forward();
  Values output = lab.output();
  const bool had_softmax = !model.notes().empty();
  EXPECT_EQ(had_softmax, GetParam() == std::string("residual"));
  if (had_softmax) {
    EXPECT_EQ(model.notes().front(),
              file + ": Softmax 'softmax' is left out: the net ends with the scores before it");
    softmax(output, y.shape.back());
  }
  EXPECT_LT(relative_error(output, values_of(y)), 1e-5);
}

INSTANTIATE_TEST_SUITE_P(, OnnxNets,
                         testing::Values("residual", "mobile", "next", "shuffle", "cube", "row",
                                         "types", "same", "slopes", "deep", "line", "groups"),
                         [](const auto& info) { return std::string(info.param); });

TEST(OnnxNet, LayersAreNamedAsNodesAndFuseAsOnesOwn) {
  const OnnxNet model = read_onnx_net(data + "/residual.onnx", {});
  EXPECT_EQ(model.graph().name(), "residual.onnx");
  EXPECT_EQ(model.graph().batch(), 1);
  std::vector<std::string> steps;
  for (const Step& step : steps_of(model.graph(), Mode::inference))
    steps.push_back(model.graph().nodes()[step.node].name);
  EXPECT_EQ(steps, (std::vector<std::string>{"input", "stem", "pool", "conv1", "conv2", "down",
                                             "mean", "fc"}));
  // Padding and activations of several nodes are none of their own.
  std::vector<std::string> kinds;
  const OnnxNet mobile = read_onnx_net(data + "/mobile.onnx", {});
  for (const Node& node : mobile.graph().nodes())
    if (std::holds_alternative<Activation>(node.layer))
      kinds.push_back(node.name + " " +
                      std::string(to_string(std::get<Activation>(node.layer).kind)));
  EXPECT_EQ(kinds,
            (std::vector<std::string>{"relu6 relu6", "hardswish hardswish", "silu silu",
                                      "gate hardsigmoid", "old_hardswish hardswish",
                                      "hardswish2 hardswish", "tanh tanh", "sigmoid sigmoid"}));
}

TEST(OnnxNet, OneMessageListsWhatHasNoLayer) {
  onnx::ModelProto model = model_of("shuffle");
  onnx::GraphProto& graph = *model.mutable_graph();
  node_of(graph, "lrn").set_op_type("Einsum");
  node_of(graph, "average").set_op_type("MaxRoiPool");
  node_of(graph, "average").set_domain("com.example");
  onnx::NodeProto& nearest = node_of(graph, "nearest");
  for (onnx::AttributeProto& a : *nearest.mutable_attribute())
    if (a.name() == "nearest_mode") a.set_s("ceil");
  EXPECT_EQ(error_of([&] {
              decoded(model, {{}, 2});
            }),
            "m: no layer for: Einsum (1: lrn), com.example:MaxRoiPool (1: average)");
  node_of(graph, "lrn").set_op_type("Softsign");  // keeps sizes, so that others are known
  node_of(graph, "average").set_op_type("AveragePool");
  node_of(graph, "average").set_domain("");
  onnx::AttributeProto& dilations = *node_of(graph, "average").add_attribute();
  dilations.set_name("dilations");
  dilations.add_ints(1), dilations.add_ints(2);
  set_int(node_of(graph, "ceil"), "ceil_mode", 0);
  EXPECT_EQ(error_of([&] {
              decoded(model, {{}, 2});
            }),
            "m: no layer for: Softsign (1: lrn), AveragePool with dilation (1: average), "
            "Resize nearest, asymmetric, ceil (1: nearest)");
}

TEST(OnnxNet, RefusesWhatNetsComputeOtherwise) {
  const struct {
    const char* model;
    std::function<void(onnx::GraphProto&)> change;
    std::string says;
  } cases[] = {
      {"residual", [](auto& g) { node_of(g, "relu1").set_op_type("Softsign"); },
       "Softsign (1: relu1)"},
      {"mobile", [](auto& g) { set_first(node_of(g, "depthwise"), "pads", -1); },
       "Conv with padding of less than nothing (1: depthwise)"},
      {"same", [](auto& g) { node_of(g, "relu6").set_op_type("Tanh"); },
       "MaxPool of a padded image (1: maximum)"},
      {"same", [](auto& g) { set_first(node_of(g, "upper"), "kernel_shape", 1); },
       "AveragePool with auto_pad and windows that leave elements out (1: upper)"},
      {"same", [](auto& g) { set_first(node_of(g, "up"), "strides", 4); },
       "ConvTranspose with auto_pad and a filter smaller than its stride (1: up)"},
      {"same", [](auto& g) { set_first(node_of(g, "maximum"), "kernel_shape", 1); },
       "MaxPool with windows in the padding alone (1: maximum)"},
      {"same", [](auto& g) { set_int(node_of(g, "padded"), "ceil_mode", 1); },
       "AveragePool of a padded image, with ceil_mode (1: padded)"},
      {"groups", [](auto& g) { weight_of(g, "norm").mutable_raw_data()->at(3) = '\x40'; },
       "InstanceNormalization with a scale that is not one a channel (1: norm)"},
      {"slopes",
       [](auto& g) { weight_of(g, "prelu").set_dims(0, 1), weight_of(g, "prelu").set_dims(2, 6); },
       "PRelu with a slope that is not one a channel (1: prelu)"},
      {"residual", [](auto& g) { set_int(node_of(g, "fc"), "transA", 1); }, "Gemm with transA"},
      {"residual", [](auto& g) { node_of(g, "fc").set_input(1, "flat"); },
       "Gemm with a matrix that the model computes (1: fc)"},
      {"residual", [](auto& g) { node_of(g, "sum").set_op_type("Mul"); }, "Mul of two images"},
      {"mobile", [](auto& g) { node_of(g, "relu6").set_input(2, "deviation"); },
       "Clip with bounds that the model computes (1: relu6)"},
      {"next", [](auto& g) { set_int(node_of(g, "norm0"), "axis", 1); },
       "LayerNormalization over more than the channels (1: norm0)"},
      {"residual",
       [](auto& g) {
         node_of(g, "relu1").set_op_type("Cast");
         set_int(node_of(g, "relu1"), "to", onnx::TensorProto::INT32);
       },
       "Cast to other than floating point (1: relu1)"},
      {"residual", [](auto& g) { set_int(node_of(g, "softmax"), "axis", 0); },
       "Softmax but as the last node, over the classes (1: softmax)"},
      {"shuffle", [](auto& g) { set_int(node_of(g, "split"), "axis", 0); }, ""},
      {"shuffle",
       [](auto& g) {
         node_of(g, "turned").set_op_type("Identity");
         onnx::TensorProto& sizes = weight_of(g, "apart");
         sizes.set_dims(0, 12);
         for (int i = 5; i < 12; ++i)
           sizes.mutable_raw_data()->append(std::string("\1\0\0\0\0\0\0\0", 8));
       },
       "Reshape other than to flatten or to shuffle channels (1: apart)"},
      {"shuffle",
       [](auto& g) {
         node_of(g, "turned").mutable_attribute(0)->set_ints(3, 4),
             node_of(g, "turned").mutable_attribute(0)->set_ints(4, 3);
       },
       "Transpose by 0 2 1 4 3 (1: turned)"},
  };
  for (const auto& [model, change, says] : cases) {
    const std::string error = error_after(model, change);
    EXPECT_NE(error.find(says), std::string::npos) << error << "\n  without: " << says;
    EXPECT_FALSE(error.empty());
    EXPECT_EQ(error.find('\n'), std::string::npos) << error;
  }
}

// Small models that were computed otherwise than ONNX Runtime does.
TEST(OnnxNet, RefusesWhatOnlyLooksLikeALayer) {
  const auto error = [](const std::string& image, const std::string& nodes) {
    onnx::ModelProto model;
    const std::string text = R"(
        ir_version: 8
        graph {
          input { name: "x" type { tensor_type { elem_type: 1 shape { )" +
                             image + R"( } } } }
          initializer { name: "3" data_type: 1 float_data: 3 }
          initializer { name: "6" data_type: 1 float_data: 6 }
          initializer { name: "filter" data_type: 1 dims: [1, 4, 1, 1] float_data: [1, 1, 1, 1] }
          output { name: "y" })" +
                             nodes + R"(
          node { op_type: "Conv" input: ["last", "filter"] output: "y" }
        })";
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &model)) << text;
    return error_of([&] { decoded(model); });
  };
  const std::string pixel =
                        "dim { dim_value: 1 } dim { dim_value: 4 } dim { dim_value: 1 } dim { "
                        "dim_value: 1 }",
                    image =
                        "dim { dim_value: 1 } dim { dim_value: 4 } dim { dim_value: 15 } dim { "
                        "dim_value: 15 }";
  // The zeros around the image are 1/2 behind a hard sigmoid.
  EXPECT_EQ(error(image, R"(
      node { op_type: "Pad" input: "x" output: "padded"
             attribute { name: "pads" type: INTS ints: [0, 0, 1, 1, 0, 0, 1, 1] } }
      node { op_type: "Add" input: ["padded", "3"] output: "more" }
      node { op_type: "Clip" input: "more" output: "clipped"
             attribute { name: "min" type: FLOAT f: 0 }
             attribute { name: "max" type: FLOAT f: 6 } }
      node { op_type: "Div" input: ["clipped", "6"] output: "last" })"),
            "m: no layer for: Div of a padded image (1: last)");
  // Channels in another order, though there is but one pixel.
  EXPECT_EQ(error(pixel, R"(
      initializer { name: "groups" data_type: 7 dims: 5 int64_data: [1, 2, 2, 1, 1] }
      initializer { name: "plain" data_type: 7 dims: 4 int64_data: [1, 4, 1, 1] }
      node { op_type: "Reshape" input: ["x", "groups"] output: "apart" }
      node { op_type: "Transpose" input: "apart" output: "turned"
             attribute { name: "perm" type: INTS ints: [0, 2, 1, 3, 4] } }
      node { op_type: "Add" input: ["apart", "turned"] output: "sum" }
      node { op_type: "Reshape" input: ["sum", "plain"] output: "last" })")
                .substr(0, 56),
            "m: no layer for: Add of images in different orders (1: s");
  const auto resize = [](const std::string& input, const std::string& places) {
    return R"(
      initializer { name: "factors" data_type: 1 dims: 2 float_data: [1.5, 1.5] }
      initializer { name: "sizes" data_type: 7 dims: 2 int64_data: [1, 1] }
      node { op_type: "Resize" input: )" +
           input + R"( output: "last"
             attribute { name: "mode" type: STRING s: "linear" }
             attribute { name: "axes" type: INTS ints: [2, 3] }
             attribute { name: "coordinate_transformation_mode" type: STRING s: ")" +
           places + R"(" } })";
  };
  EXPECT_EQ(error(image, resize(R"(["x", "", "factors"])", "half_pixel")),
            "m: no layer for: Resize by a factor that does not give whole pixels (1: last)");
  EXPECT_EQ(error(image, resize(R"(["x", "", "", "sizes"])", "pytorch_half_pixel")),
            "m: no layer for: Resize linear, pytorch_half_pixel, to one pixel (1: last)");
  EXPECT_EQ(error(image, resize(R"(["x", "", "", "sizes"])", "half_pixel")), "");
  // 7 / 2 * 2 of integers is 6.
  EXPECT_EQ(error(image, R"(
      initializer { name: "0" data_type: 7 dims: 1 int64_data: 0 }
      initializer { name: "1" data_type: 7 dims: 1 int64_data: 1 }
      initializer { name: "2" data_type: 7 dims: 1 int64_data: 2 }
      initializer { name: "7" data_type: 7 dims: 1 int64_data: 7 }
      node { op_type: "Div" input: ["7", "2"] output: "half" }
      node { op_type: "Mul" input: ["half", "2"] output: "even" }
      node { op_type: "Slice" input: ["x", "0", "even", "1"] output: "last" })"),
            "m: no layer for: Slice with ends that the model computes (1: last)");
  EXPECT_NE(error(image, R"(
      initializer { name: "sizes" data_type: 1 dims: 2 float_data: [nan, inf] }
      node { op_type: "Reshape" input: ["x", "sizes"] output: "last" })"),
            "");
}

TEST(OnnxNet, RefusesModelsThatContradictThemselves) {
  const struct {
    const char* model;
    std::function<void(onnx::GraphProto&)> change;
    std::string says;
  } cases[] = {
      {"residual", [](auto& g) { weight_of(g, "conv2").set_raw_data("short"); },
       "5 bytes: its sizes take 576"},
      {"residual", [](auto& g) { weight_of(g, "conv2").clear_raw_data(); },
       "has no elements: the model was exported without its weights"},
      {"residual", [](auto& g) { weight_of(g, "conv2").set_data_type(onnx::TensorProto::INT8); },
       "is INT8: weights are FLOAT"},
      {"residual", [](auto& g) { weight_of(g, "conv2").set_dims(0, 1 << 30); },  // 48 GB
       "m: "},
      {"residual", [](auto& g) { weight_of(g, "fc").set_dims(0, std::int64_t{1} << 31); },  // 96 GB
       "m: "},
      {"residual", [](auto& g) { weight_of(g, "conv2").set_dims(1, 7); },
       "12 channels, a filter of 12x7x1x1 and 1 groups do not go together"},
      {"residual", [](auto& g) { weight_of(g, "norm2", 3).set_dims(0, 7); },
       "7 values for 12 channels"},
      {"residual", [](auto& g) { node_of(g, "stem").set_input(0, "relu"); },  // a cycle
       "depends on no input"},
      {"residual", [](auto& g) { g.clear_output(); }, "the model has no output"},
      {"residual", [](auto& g) { g.mutable_output(0)->set_name("x"); }, "is its input"},
      {"cube", [](auto& g) { g.clear_input(); }, "the model has no input"},
      {"cube",
       [](auto& g) { g.mutable_input(0)->mutable_type()->mutable_tensor_type()->clear_shape(); },
       "the model says no sizes"},
  };
  for (const auto& [model, change, says] : cases) {
    const std::string error = error_after(model, change);
    EXPECT_NE(error.find(says), std::string::npos) << error << "\n  without: " << says;
    EXPECT_FALSE(error.empty());
  }
  // A batch that a Reshape has fixed.
  onnx::ModelProto fixed = model_of("shuffle");
  for (onnx::TensorProto& t : *fixed.mutable_graph()->mutable_initializer())
    if (t.name() == node_of(*fixed.mutable_graph(), "apart").input(1)) {
      const std::int64_t one = 1;
      t.mutable_raw_data()->replace(0, 8, reinterpret_cast<const char*>(&one), 8);
    }
  EXPECT_NE(error_of([&] {
              decoded(fixed, {{}, 4});
            }).find("Reshape 'apart': 4x16x14x14 into 1x4x4x14x14: expected a model with"),
            std::string::npos);
}

// Data beside the model: read from its folder, and from nowhere else.
class OnnxData : public testing::Test {
 protected:
  OnnxData() {
    fs::create_directories(folder_ / "below");
    std::ofstream(outside_) << "1234567890123456";
    std::ofstream(folder_ / "here") << "1234567890123456";
    fs::create_symlink(outside_, folder_ / "link");
  }
  ~OnnxData() override { fs::remove_all(folder_.parent_path()); }

  std::string error(const std::string& location, const std::string& offset = "0",
                    const std::string& length = "16") {
    onnx::ModelProto model = model_of("types");
    onnx::TensorProto& tensor = weight_of(*model.mutable_graph(), "conv2", 2);
    tensor.clear_external_data();
    for (const auto& [key, value] :
         {std::pair{"location", location}, {"offset", offset}, {"length", length}}) {
      onnx::StringStringEntryProto& entry = *tensor.add_external_data();
      entry.set_key(key);
      entry.set_value(value);
    }
    const std::string path = folder_ / "m.onnx";
    std::ofstream file(path, std::ios::binary);
    model.SerializeToOstream(&file);
    file.close();
    return error_of([&] { read_onnx_net(path, {}).weights(); });
  }

  const fs::path folder_ =
      fs::path(testing::TempDir()) / ("onnx_data." + std::to_string(getpid())) / "models";
  const fs::path outside_ = folder_.parent_path() / "outside";
};

TEST_F(OnnxData, StaysInTheModelsFolder) {
  EXPECT_EQ(error("here"), "");
  EXPECT_EQ(error("below/../here"), "");
  for (const std::string& outside :
       {std::string("../outside"), std::string("below/../../outside"), outside_.string(),
        std::string("link"), std::string(), std::string("/etc/passwd")})
    EXPECT_NE(error(outside).find("expected a file in the model's folder"), std::string::npos)
        << outside << ": " << error(outside);
  for (const char* absent : {"nosuch", "below"})
    EXPECT_NE(error(absent).find("which is not there"), std::string::npos) << absent;
}

TEST_F(OnnxData, HasTheBytesThatItClaims) {
  for (const auto& [offset, length] :
       {std::pair{"1", "16"}, {"0", "8"}, {"0", "10000000000"}, {"18446744073709551615", "16"}})
    EXPECT_NE(error("here", offset, length).find("it takes 16, and the file has 16"),
              std::string::npos)
        << offset << " " << length << ": " << error("here", offset, length);
  EXPECT_NE(error("here", "-1").find("offset '-1': expected a number"), std::string::npos);
}

}  // namespace
}  // namespace convlab::nets
