// Weights of nets in files: torchvision's keys, round trips, and files of another net.

#include "nets/weights/weights.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "conv/error.h"
#include "kernels_cpu/cpu.h"
#include "nets/run/assembly.h"
#include "nets/tensor.h"
#include "nets/weights/file_io.h"
#include "nets/weights/notes.h"
#include "nets/zoo/zoo.h"
#include "tests/nets/net_lab.h"

namespace convlab::nets {
namespace {

using Shapes = std::map<std::string, std::vector<std::int64_t>>;

// ---- torchvision's keys ----

// By net, from the file of generate_keys.py.
std::map<std::string, Shapes> torchvision_nets() {
  std::map<std::string, Shapes> nets;
  std::ifstream file(std::filesystem::path(CONVLAB_WEIGHTS_DATA) / "torchvision.txt");
  std::string net, module, leaf, shape, text;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("#")) continue;
    std::istringstream words(line);
    words >> module;
    if (module == "net") {
      words >> net;
      continue;
    }
    while (words >> leaf >> shape) {
      std::vector<std::int64_t>& sizes = nets[net][module + "." + leaf];
      std::istringstream numbers(shape == "-" ? "" : shape);
      while (std::getline(numbers, text, 'x')) sizes.push_back(std::stoll(text));
    }
  }
  return nets;
}

TEST(Weights, HaveTorchvisionsKeysAndShapes) {
  const auto nets = torchvision_nets();
  EXPECT_EQ(nets.size(), 27u);
  const auto device = make_cpu_device();
  for (const auto& [name, theirs] : nets) {
    const Graph graph = make_net(name, 1);
    const Assembly net(
        graph, uniform_plan(graph, Mode::training, DType::f32, "im2col", Layout::nchw, *device),
        cpu_algos(), *device, {.loss = Loss::none});
    EXPECT_EQ(weight_shapes(net.parameters.list()), theirs) << name;
  }
}

// ---- In and out ----

// Inference with a small net, which packs its filters at the first forward.
struct Inference {
  std::unique_ptr<Device> device = make_cpu_device({2, ""});
  NetLab lab;

  explicit Inference(std::uint64_t seed, DType dtype = DType::f32)
      : Inference(small_net("residual").make(2), seed, dtype) {}
  Inference(const Graph& graph, std::uint64_t seed, DType dtype = DType::f32)
      : lab(graph,
            uniform_plan(graph, Mode::inference, dtype, "winograd", Layout::nchw16c, *device),
            *device, {.loss = Loss::none}, seed) {
    lab.set_input(random_values(std::int64_t(lab.input().size()), 1));
  }
  Values output() {
    lab.forward();
    return lab.output();
  }
};

TEST(Weights, ComeBackAsTheyWere) {
  Inference from(1), to(2);
  EXPECT_NE(to.output(), from.output());
  const ArrayFile file = weights_of(from.lab.net());
  EXPECT_EQ(file.at("conv1.bn.num_batches_tracked"),
            array_of(ElementType::i64, {}, std::array{0.0}));
  const LoadedWeights loaded = load_weights(to.lab.net(), file, "f");
  EXPECT_TRUE(loaded.ignored.empty() && loaded.missing.empty());
  EXPECT_EQ(to.output(), from.output());
  EXPECT_EQ(weights_of(to.lab.net()).arrays, file.arrays);
}

TEST(Weights, AreRoundedToTheNetsType) {
  Inference from(1);
  ArrayFile file = weights_of(from.lab.net());
  for (const ElementType type : {ElementType::f16, ElementType::bf16, ElementType::f64}) {
    Array& filter = file.arrays.at("conv1.weight");
    filter = array_of(type, filter.shape, values_of(filter));
    for (const DType dtype : {DType::f32, DType::f64}) {
      Inference to(2, dtype);
      load_weights(to.lab.net(), file, "f");
      const Parameter& p = to.lab.parameter("conv1.weight");
      EXPECT_EQ(to.lab.read(p.value, p.count), values_of(filter));
    }
  }
}

// Otherwise they would show much later or, if lost on the way, never.
TEST(Weights, ThatAreNotFiniteAreNamed) {
  Inference net(1);
  const Values before = net.output();
  for (const double value : {std::nan(""), double(INFINITY), 1e300}) {  // overflows f32
    ArrayFile file = weights_of(net.lab.net());
    Array& filter = file.arrays.at("conv1.weight");
    Values values = values_of(filter);
    values[3] = value;
    filter = array_of(ElementType::f64, filter.shape, values);
    std::string error = "accepted";
    try {
      load_weights(net.lab.net(), file, "w.npz", Fit::partial);
    } catch (const InputError& e) {
      error = e.what();
    }
    EXPECT_EQ(error, "w.npz: unusable weights: 1 infinite or NaN in f32 (conv1.weight)");
    EXPECT_EQ(net.output(), before);
  }
}

TEST(Weights, OfATrainingNetCountItsUpdates) {
  const auto device = make_cpu_device({2, ""});
  const Graph graph = small_net("residual").make(2);
  NetLab lab(graph,
             uniform_plan(graph, Mode::training, DType::f32, "im2col", Layout::nchw, *device),
             *device);
  lab.forward();
  lab.net().backward();
  lab.net().update(SgdDesc{.rate = 0.1});
  EXPECT_EQ(values_of(weights_of(lab.net()).at("a1.bn.num_batches_tracked")), Values{1});
}

// ---- Weights of another net ----

std::string error_of(NetLab& lab, const ArrayFile& file) {
  try {
    load_weights(lab.net(), file, "w.npz");
  } catch (const InputError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Weights, SayWhatDoesNotFit) {
  Inference net(1);
  const Values before = net.output();
  const ArrayFile whole = weights_of(net.lab.net());
  ArrayFile file = whole;
  file.arrays.erase("conv1.bn.num_batches_tracked");  // as in old files
  EXPECT_EQ(error_of(net.lab, file), "accepted");

  for (auto& [key, array] : file.arrays)  // before anything is changed
    for (std::byte& b : array.bytes) b = {};
  file.arrays.erase("a1.weight");
  EXPECT_EQ(error_of(net.lab, file), "w.npz: not the weights of residual: 1 missing (a1.weight)");
  file = whole;
  file.arrays["head.weight"] = file.arrays["aux1.fc.weight"] = whole.at("fc.weight");
  EXPECT_EQ(error_of(net.lab, file),
            "w.npz: not the weights of residual: 2 unexpected (aux1.fc.weight, head.weight)");
  file = whole;
  file.arrays["fc.weight"].shape = {16 * 9};
  file.arrays["fc.bias"].type = ElementType::i32;
  EXPECT_EQ(error_of(net.lab, file),
            "w.npz: not the weights of residual: 2 misshapen (fc.bias is i32 [6], not f32 [6], "
            "fc.weight is f32 [144], not f32 [6, 24])");
  file = {};
  for (const auto& [key, array] : whole.arrays) file.arrays["module." + key] = array;
  EXPECT_NE(error_of(net.lab, file).find("the names begin with 'module.': save them without it"),
            std::string::npos)
      << error_of(net.lab, file);
  file = {};
  file.arrays["x"] = whole.at("fc.bias");
  EXPECT_EQ(error_of(net.lab, file),
            "w.npz: not the weights of residual: 32 missing (conv1.weight, conv1.bn.weight, "
            "conv1.bn.bias, conv1.bn.running_mean, conv1.bn.running_var, ...); 1 unexpected (x)");
  EXPECT_EQ(net.output(), before);
}

TEST(Weights, OfAnotherHeadFitPartly) {
  Inference from(1), to(2);
  ArrayFile file = weights_of(from.lab.net());
  const ArrayFile own = weights_of(to.lab.net());
  file.arrays["fc.bias"] = array_of(ElementType::f32, {2}, Values{1, 2});
  file.arrays.erase("fc.weight");
  file.arrays["new"] = file.at("fc.bias");
  const LoadedWeights loaded = load_weights(to.lab.net(), file, "f", Fit::partial);
  EXPECT_EQ(loaded.missing, std::vector<std::string>{"fc.weight"});
  EXPECT_EQ(loaded.unexpected, std::vector<std::string>{"new"});
  EXPECT_EQ(loaded.misshapen, std::vector<std::string>{"fc.bias"});
  const ArrayFile now = weights_of(to.lab.net());
  EXPECT_EQ(now.at("fc.weight"), own.at("fc.weight"));
  EXPECT_EQ(now.at("fc.bias"), own.at("fc.bias"));
  EXPECT_EQ(now.at("conv1.weight"), file.at("conv1.weight"));
}

TEST(Weights, OfAuxiliaryHeadsAreIgnoredAndNamed) {
  for (const auto& [name, head] :
       {std::pair{"googlenet", "aux2"}, {"googlenet:6", "aux2"}, {"inception_v3", "AuxLogits"}}) {
    Graph graph(name);
    input(graph, {1, 3, 8, 8}).conv("conv1", {.filters = 4, .kernel = 3}).linear("fc", 6);
    Inference net(graph, 1);
    ArrayFile file = weights_of(net.lab.net());
    EXPECT_EQ(outputs_of(file, graph), 6);
    for (const char* part : {".fc2.weight", ".fc2.bias"})
      file.arrays[std::string(head) + part] = file.at("fc.bias");
    EXPECT_EQ(load_weights(net.lab.net(), file, "f").ignored, std::vector<std::string>{head});
    file.arrays["aux3.fc2.bias"] = file.at("fc.bias");
    EXPECT_EQ(error_of(net.lab, file),
              fmt::format("w.npz: not the weights of {}: 1 unexpected (aux3.fc2.bias)", name));
  }
}

// Shapes are compared before data are read: this file claims 64 GB that do not exist.
TEST(Weights, ThatDoNotFitAreNotRead) {
  Inference net(1);
  const std::string path = testing::TempDir() + "/sparse_weights.safetensors";
  constexpr std::uint64_t bytes = std::uint64_t(1) << 36;
  const std::string header = fmt::format(
      R"({{"fc.bias":{{"dtype":"F32","shape":[{}],"data_offsets":[0,{}]}}}})", bytes / 4, bytes);
  const std::uint64_t length = header.size();
  std::ofstream(path, std::ios::binary)
      << std::string(reinterpret_cast<const char*>(&length), 8) << header;
  std::filesystem::resize_file(path, 8 + length + bytes);
  EXPECT_THROW(load_weights(net.lab.net(), ArrayReader(path)), InputError);
  std::filesystem::remove(path);
}

// ---- Text that accompanies weights ----

TEST(Lines, AreWithoutWhatEditorsLeave) {
  using Lines = std::vector<std::string>;
  EXPECT_EQ(lines_of("a\nb c\n"), (Lines{"a", "b c"}));
  EXPECT_EQ(lines_of("\xef\xbb\xbf"
                     "a\r\nb\r\n\r\n\n"),
            (Lines{"a", "b"}));
  EXPECT_EQ(lines_of(""), Lines{});
}

TEST(ClassNames, AreTextOfOneLine) {
  EXPECT_NO_THROW(require_class_names("f", {"cat", "caf\xc3\xa9", ""}));
  for (const char* bad : {"caf\xe9", "a\nb", "\x1b[2J", "\xc2\x9b"})
    EXPECT_THROW(require_class_names("f", {"cat", bad}), InputError) << bad;
}

TEST(WeightsNotes, ComeBackAsTheyWere) {
  WeightsNotes notes{"resnet20:3", {"a", "b c", "d"}, Transform{}};
  notes.transform->resize = 36;
  notes.transform->pad = 2;
  notes.transform->mean = {0.1, 1.0 / 3, 0.5};
  notes.transform->deviation = {1, 2, 1e-3};
  const WeightsNotes back = notes_of(to_metadata(notes), "f");
  EXPECT_EQ(back.net, notes.net);
  EXPECT_EQ(back.classes, notes.classes);
  ASSERT_TRUE(back.transform);
  EXPECT_EQ(back.transform->channels, 3);
  EXPECT_EQ(back.transform->height, 32);
  EXPECT_EQ(back.transform->resize, 36);
  EXPECT_EQ(back.transform->pad, 2);
  EXPECT_EQ(back.transform->mean, notes.transform->mean);
  EXPECT_EQ(back.transform->deviation, notes.transform->deviation);
  EXPECT_EQ(back.transform->frames, 1);
  notes.transform->frames = 16;
  EXPECT_EQ(to_metadata(notes).at("input"), "3x16x32x32");
  const Transform clip = *notes_of(to_metadata(notes), "f").transform;
  EXPECT_EQ(clip.frames, 16);
  EXPECT_EQ(clip.elements(), 3 * 16 * 32 * 32);

  EXPECT_TRUE(to_metadata({}).empty());
  EXPECT_FALSE(notes_of({{"format", "pt"}}, "f").transform);
  for (const auto& [key, value] :
       std::vector<std::pair<std::string, std::string>>{{"input", "3x32"},
                                                        {"input", "3x32x"},
                                                        {"mean", "0.5,,0.5"},
                                                        {"resize", ""},
                                                        {"mean", "nan,0,0"},
                                                        {"mean", "inf,0,0"},
                                                        {"mean", "0.5"},
                                                        {"deviation", "1,nan,1"},
                                                        {"deviation", "1,1,inf"},
                                                        {"deviation", "1,0,1"},
                                                        {"resize", "1000000000000000000"},
                                                        {"pad", "-1"},
                                                        {"input", "3x4294967296x4294967296"},
                                                        {"input", "3x0x32x32"},
                                                        {"input", "3x4294967296x32x32"},
                                                        {"input", "3x1x1x32x32"},
                                                        {"classes", "a\n\x1b[2J"}}) {
    auto metadata = to_metadata(notes);
    metadata[key] = value;
    EXPECT_THROW(notes_of(metadata, "f"), InputError) << key << " " << value;
  }
}

TEST(WeightsNotes, MeanAndDeviationStandWithoutAnInput) {
  const WeightsNotes notes = notes_of({{"mean", "0.5"}, {"std", "0.25"}}, "f");
  EXPECT_FALSE(notes.transform);
  EXPECT_EQ(notes.pixels.mean, std::vector<double>{0.5});
  EXPECT_EQ(notes.pixels.deviation, std::vector<double>{0.25});
  using Metadata = std::map<std::string, std::string>;
  for (const Metadata& alone :
       {Metadata{{"mean", "0.5"}}, Metadata{{"deviation", "0.5"}}, Metadata{{"resize", "36"}},
        Metadata{{"pad", "2"}}, Metadata{{"mean", "?"}, {"std", "1"}},
        Metadata{{"mean", "nan"}, {"std", "1"}}, Metadata{{"mean", "0,0"}, {"std", "1,1"}},
        Metadata{{"mean", "0"}, {"std", "1,1,1"}}, Metadata{{"mean", "0"}, {"std", "0"}}})
    EXPECT_THROW(notes_of(alone, "f"), InputError) << alone.begin()->first;
}

}  // namespace
}  // namespace convlab::nets
