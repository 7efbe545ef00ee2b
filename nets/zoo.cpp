#include "nets/zoo.h"

#include <fmt/format.h>

#include <functional>

#include "conv/error.h"
#include "conv/names.h"

namespace convlab {
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
    for (int depth : {20, 56})
      list.push_back({fmt::format("resnet{}", depth),
                      [=](std::int64_t batch) { return cifar_resnet(depth, batch); }});
    list.push_back({"lenet", lenet});
    return list;
  }();
  return entries;
}

}  // namespace

const std::vector<std::string>& net_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> list;
    for (const Entry& entry : zoo()) list.push_back(entry.name);
    list.push_back("mlp:20-256x5-1");
    return list;
  }();
  return names;
}

Graph make_net(std::string_view name, std::int64_t batch) {
  if (batch < 1) throw InputError(fmt::format("batch is {}: it takes 1 or more", batch));
  if (name.substr(0, 4) == "mlp:") return mlp(name, batch);
  for (const Entry& entry : zoo())
    if (entry.name == name) return entry.make(batch);
  throw InputError(
      fmt::format("unknown net '{}': did you mean {}?", name, nearest_names(name, net_names())));
}

}  // namespace convlab
