#include "nets/zoo/zoo.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <functional>

#include "conv/error.h"
#include "conv/text/names.h"
#include "recurrent/problem_text.h"

namespace convlab::nets {
namespace {

struct Entry {
  std::string name;
  std::function<Graph(std::int64_t batch)> make;
};

const std::vector<Entry>& zoo() {
  static const std::vector<Entry> entries = [] {
    std::vector<Entry> list{
        {"alexnet", alexnet}, {"alexnet2012", alexnet2012}, {"overfeat", overfeat}};
    for (bool bn : {false, true})
      for (int depth : {11, 13, 16, 19})
        list.push_back({fmt::format("vgg{}{}", depth, bn ? "_bn" : ""),
                        [=](std::int64_t batch) { return vgg(depth, bn, batch); }});
    list.push_back({"googlenet", googlenet});
    list.push_back({"googlenet2014", googlenet2014});
    for (int depth : {18, 34, 50, 101, 152})
      list.push_back({fmt::format("resnet{}", depth),
                      [=](std::int64_t batch) { return resnet(depth, batch); }});
    list.push_back({"resnext50_32x4d", resnext50_32x4d});
    list.push_back({"squeezenet1_1", squeezenet1_1});
    list.push_back({"mobilenet_v2", mobilenet_v2});
    list.push_back({"mobilenet_v3_large", mobilenet_v3_large});
    list.push_back({"densenet121", densenet121});
    list.push_back({"efficientnet_b0", efficientnet_b0});
    list.push_back({"regnet_y_400mf", regnet_y_400mf});
    list.push_back({"inception_v3", inception_v3});
    list.push_back({"shufflenet_v2_x1_0", shufflenet_v2_x1_0});
    list.push_back({"convnext_tiny", convnext_tiny});
    list.push_back({"deeplabv3_resnet50", deeplabv3_resnet50});
    list.push_back({"unet", unet});
    list.push_back({"r3d_18", r3d_18});
    list.push_back({"unet3d", unet3d});
    for (int depth : {20, 56})
      list.push_back({fmt::format("resnet{}", depth),
                      [=](std::int64_t batch) { return cifar_resnet(depth, batch); }});
    list.push_back({"lenet", lenet});
    return list;
  }();
  return entries;
}

// The number behind the colon.
std::int64_t parse_classes(std::string_view name, std::string_view text) {
  constexpr std::int64_t most = 1 << 20;
  std::int64_t classes = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), classes);
  if (error != std::errc() || end != text.data() + text.size() || classes < 1 || classes > most)
    throw InputError(fmt::format(
        "malformed net '{}': '{}' is not a number of classes from 1 to {}, as in resnet18:10", name,
        text, most));
  return classes;
}

std::int64_t classes_of(const Graph& net) { return net.nodes()[net.head()].shape.c; }

Graph with_classes(const Graph& net, std::int64_t classes) {
  if (classes == classes_of(net)) return net;
  Graph other(fmt::format("{}:{}", net.name(), classes));
  for (NodeId id = 0; id < net.nodes().size(); ++id) {
    const Node& node = net.nodes()[id];
    Layer layer = node.layer;
    if (id == net.head()) {
      if (auto* conv = std::get_if<Conv>(&layer))
        conv->filters = classes;
      else
        layer = Linear{classes};
    }
    other.add(node.name, std::move(layer), node.inputs);
  }
  return other;
}

}  // namespace

const std::vector<std::string>& net_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> list;
    for (const Entry& entry : zoo()) list.push_back(entry.name);
    list.push_back("mlp:20-256x5-1");
    list.push_back("rnn:28-128x2-10:lstm");
    return list;
  }();
  return names;
}

Graph make_net(std::string_view name, std::int64_t batch, std::int64_t classes) {
  if (batch < 1) throw InputError(fmt::format("batch is {}: it takes 1 or more", batch));
  const auto require = [&](std::int64_t said) {
    if (classes != 0 && said != classes)
      throw InputError(
          fmt::format("net {} has {} outputs, but there are {} classes", name, said, classes));
  };
  for (const auto& [prefix, make] : {std::pair{"mlp:", &mlp}, {"rnn:", &rnn}}) {
    if (!name.starts_with(prefix)) continue;
    Graph net = make(name, batch);
    require(classes_of(net));
    return net;
  }
  const std::size_t colon = std::min(name.find(':'), name.size());
  const std::string_view plain = name.substr(0, colon);
  for (const Entry& entry : zoo()) {
    if (entry.name != plain) continue;
    if (colon < name.size()) {
      const std::int64_t said = parse_classes(name, name.substr(colon + 1));
      require(said);
      classes = said;
    }
    const Graph net = entry.make(batch);
    return classes == 0 ? net : with_classes(net, classes);
  }
  throw InputError(fmt::format(
      "unknown net '{}': {}", name,
      name.ends_with(".onnx")  ? "an ONNX model is a net for time, plan, predict and scaling alone"
      : begins_with_cell(name) ? "a net of recurrent layers is written rnn:28-128x2-10:lstm"
                               : did_you_mean(plain, net_names())));
}

}  // namespace convlab::nets
