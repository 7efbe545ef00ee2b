#include <gtest/gtest.h>
#include <onnx/onnx_pb.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>

#include "conv/error.h"
#include "nets/onnx/layers.h"

namespace convlab::nets {
namespace {

const std::string data = CONVLAB_ONNX_DATA;

std::string join(const std::vector<std::int64_t>& sizes) {
  std::string text;
  for (const std::int64_t s : sizes) text += (text.empty() ? "" : "x") + std::to_string(s);
  return text;
}

// "name x w y", as expected.txt has it.
std::string show(const ConvLayer& conv) {
  const ConvProblem& p = conv.layer.problem;
  const auto of = [&](std::int64_t n, std::int64_t c, std::int64_t d, std::int64_t h,
                      std::int64_t w, bool volume, bool row) {
    std::vector<std::int64_t> sizes{n, c};
    if (volume) sizes.push_back(d);
    if (!row) sizes.push_back(h);
    sizes.push_back(w);
    return join(sizes);
  };
  const bool volume = p.t > 1, row = p.h == 1 && p.r == 1 && p.w > 1;
  const std::string image = of(p.n, p.c, p.d, p.h, p.w, volume, row);
  const std::string out = of(p.n, p.k, p.z, p.p, p.q, volume, row);
  return conv.layer.name + " " + (conv.transposed ? out : image) + " " +
         of(p.k, p.c / p.groups, p.t, p.r, p.s, volume, row) + " " +
         (conv.transposed ? image : out);
}

std::vector<std::string> shown(const OnnxLayers& model) {
  std::vector<std::string> lines;
  for (const ConvLayer& conv : model.layers) lines.push_back(show(conv));
  return lines;
}

std::string error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const InputError& e) {
    return e.what();
  }
  return "";
}

// A model of one convolution, changed by `change`, in a file.
class OneConvolution {
 public:
  explicit OneConvolution(const std::function<void(onnx::ModelProto&)>& change) {
    model_.set_ir_version(8);
    onnx::GraphProto& graph = *model_.mutable_graph();
    onnx::ValueInfoProto& x = *graph.add_input();
    x.set_name("x");
    for (const std::int64_t size : {1, 4, 8, 8})
      x.mutable_type()->mutable_tensor_type()->mutable_shape()->add_dim()->set_dim_value(size);
    onnx::TensorProto& w = *graph.add_initializer();
    w.set_name("w");
    for (const std::int64_t size : {6, 4, 3, 3}) w.add_dims(size);
    onnx::NodeProto& conv = *graph.add_node();
    conv.set_op_type("Conv");
    conv.set_name("conv");
    conv.add_input("x");
    conv.add_input("w");
    conv.add_output("y");
    change(model_);
    std::ofstream file(path_, std::ios::binary);
    model_.SerializeToOstream(&file);
  }
  ~OneConvolution() { std::filesystem::remove(path_); }

  std::string error() const {
    return error_of([&] { read_onnx_layers(path_, {}); });
  }
  OnnxLayers read() const { return read_onnx_layers(path_, {}); }

 private:
  const std::string path_ =
      testing::TempDir() + "one_convolution." + std::to_string(getpid()) + ".onnx";
  onnx::ModelProto model_;
};

onnx::NodeProto& conv_of(onnx::ModelProto& model) {
  return *model.mutable_graph()->mutable_node(0);
}

void add_ints(onnx::NodeProto& node, const char* name, std::initializer_list<std::int64_t> values) {
  onnx::AttributeProto& a = *node.add_attribute();
  a.set_name(name);
  a.set_type(onnx::AttributeProto::INTS);
  for (const std::int64_t v : values) a.add_ints(v);
}

// tests/nets/onnx/generate.py asked ONNX Runtime.
TEST(Onnx, ShapesAreThoseOfARun) {
  std::map<std::string, std::vector<std::string>> expected;
  std::ifstream file(data + "/expected.txt");
  for (std::string line; std::getline(file, line);)
    if (const std::size_t space = line.find(' '); !line.starts_with('#'))
      expected[line.substr(0, space)].push_back(line.substr(space + 1));
  ASSERT_EQ(expected.size(), 3U);
  const std::map<std::string, std::int64_t> dims{{"N", 2}, {"height", 43}, {"width", 38}};
  for (const auto& [name, lines] : expected) {
    const OnnxLayers model = read_onnx_layers(data + "/" + name + ".onnx",
                                              {name == "operators" ? dims : decltype(dims)(), {}});
    EXPECT_EQ(shown(model), lines);
    EXPECT_TRUE(model.notes.empty()) << model.notes.front();
    EXPECT_TRUE(model.layers.front().first);
    EXPECT_FALSE(model.layers.back().first);
  }
}

TEST(Onnx, BatchIsOneWhereItIsOpenAndWhatOneSays) {
  const std::string file = data + "/operators.onnx";
  OnnxSizes sizes{{{"height", 43}, {"width", 38}}, {}};
  OnnxLayers model = read_onnx_layers(file, sizes);
  EXPECT_EQ(model.layers.back().layer.problem.n, 1);
  EXPECT_EQ(model.notes, std::vector<std::string>{
                             file + ": dimension N is 1: --batch N or --dim N=N says otherwise"});
  sizes.batch = 5;
  model = read_onnx_layers(file, sizes);
  for (const ConvLayer& conv : model.layers) EXPECT_EQ(conv.layer.problem.n, 5) << show(conv);
  EXPECT_TRUE(model.notes.empty());
  // Where the file has a number, that one goes; a filter among the inputs keeps its sizes.
  model = read_onnx_layers(data + "/old.onnx", {{}, 7});
  EXPECT_EQ(shown(model), (std::vector<std::string>{"first 7x3x10x10 4x3x3x3 7x4x10x10",
                                                    "last 7x4x24x24 6x4x3x3 7x6x22x22"}));
}

TEST(Onnx, SaysWhatItLeavesOut) {
  const std::string file = data + "/unknown.onnx";
  const OnnxLayers model = read_onnx_layers(file, {});
  EXPECT_EQ(shown(model), std::vector<std::string>{"known 1x3x8x8 4x3x3x3 1x4x6x6"});
  EXPECT_EQ(model.notes,
            (std::vector<std::string>{
                file + ": 1 of 2 convolutions have no known shape: 1 by MaxUnpool 'unpool'",
                file + ": convolutions in the bodies of If 'either' are not counted"}));
}

TEST(Onnx, SizesThatNothingSaysAreAskedFor) {
  const std::string file = data + "/operators.onnx";
  EXPECT_EQ(error_of([&] { read_onnx_layers(file, {}); }),
            file +
                ": its inputs have sizes without a number: expected --dim height=N --dim "
                "width=N");
  EXPECT_EQ(error_of([&] {
              read_onnx_layers(file, {{{"hight", 3}}, {}});
            }),
            file + ": --dim hight: unknown dimension: expected one of N, height, width");
  EXPECT_EQ(error_of([&] {
              read_onnx_layers(data + "/volume.onnx", {{{"N", 3}}, {}});
            }),
            data + "/volume.onnx: --dim N: the model names no dimension");
}

TEST(Onnx, RefusesWhatIsNoModel) {
  const std::string path = testing::TempDir() + "no_model." + std::to_string(getpid()) + ".onnx";
  std::ostringstream whole;
  whole << std::ifstream(data + "/operators.onnx", std::ios::binary).rdbuf();
  const std::string model = whole.str();
  ASSERT_GT(model.size(), 1000U);
  // The last claims 2 GB for its graph.
  for (const std::string& text :
       {std::string(), std::string("not a model\n"), std::string(300, '\0'),
        model.substr(0, model.size() - 7), model.substr(1),
        std::string("\x08\x08\x3a\xff\xff\xff\xff\x07", 8)}) {
    std::ofstream(path, std::ios::binary) << text;
    EXPECT_EQ(error_of([&] { read_onnx_layers(path, {}); }),
              path + ": is no ONNX model, or is cut short");
  }
  std::filesystem::remove(path);
  EXPECT_EQ(error_of([&] { read_onnx_layers(path, {}); }),
            path + ": cannot be opened: expected an ONNX model");
}

TEST(Onnx, RefusesModelsThatContradictThemselves) {
  const OneConvolution fine([](auto&) {});
  EXPECT_EQ(shown(fine.read()), std::vector<std::string>{"conv 1x4x8x8 6x4x3x3 1x6x6x6"});
  const struct {
    std::function<void(onnx::ModelProto&)> change;
    std::string says;
  } cases[] = {
      {[](auto& m) { m.mutable_graph()->mutable_initializer(0)->set_dims(2, -3); },
       "tensor 'w': dimension -3: expected 0 to 2147483648"},
      {[](auto& m) { m.mutable_graph()->mutable_initializer(0)->set_dims(0, 1LL << 40); },
       "tensor 'w': dimension 1099511627776: expected 0 to 2147483648"},
      {[](auto& m) { m.mutable_graph()->mutable_initializer(0)->set_dims(1, 5); },
       "Conv 'conv': 4 channels, a filter of 6x5 and 1 groups do not go together"},
      {[](auto& m) {
         add_ints(conv_of(m), "strides", {0, 1});
       },
       "strides 0 1: expected 2 values"},
      {[](auto& m) {
         add_ints(conv_of(m), "pads", {1, 1});
       },
       "pads 1 1: expected 4 values"},
      {[](auto& m) {
         add_ints(conv_of(m), "dilations", {9, 9});
       },
       "Conv 'conv': "},
      {[](auto& m) { m.mutable_graph()->mutable_initializer(0)->mutable_dims()->RemoveLast(); },
       "of 4 dimensions and a filter of 3"},
      {[](auto& m) { conv_of(m).set_op_type("Relu"); }, "the model has no convolutions"},
      {[](auto& m) { conv_of(m).set_input(0, "y"); },  // a cycle
       "1 of 1 convolutions have no known shape: 1 by Conv 'conv'"},
      {[](auto& m) { conv_of(m).mutable_input()->RemoveLast(); }, "have no known shape"},
  };
  for (const auto& [change, says] : cases)
    EXPECT_NE(OneConvolution(change).error().find(says), std::string::npos)
        << OneConvolution(change).error() << "\n  without: " << says;
}

}  // namespace
}  // namespace convlab::nets
