#include "nets/zoo.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "conv/error.h"

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

// Levenshtein's edit distance.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < b.size(); ++j)
      diagonal = std::exchange(
          row[j + 1], std::min({row[j + 1] + 1, row[j] + 1, diagonal + (a[i] == b[j] ? 0 : 1)}));
  }
  return row[b.size()];
}

// The names nearest to what was asked for; all of them when none is near.
std::string nearest(std::string_view name) {
  const std::size_t longest_sensible = 40;  // the distance is quadratic in the length
  std::string lower(name.substr(0, longest_sensible));
  for (char& c : lower)
    if (c >= 'A' && c <= 'Z') c += 'a' - 'A';
  std::size_t best = lower.size() / 2;
  std::vector<std::string> names;
  for (const std::string& known : net_names()) {
    const std::size_t d = distance(lower, known);
    if (d < best) names.clear();
    if (d <= best) names.push_back(known);
    best = std::min(best, d);
  }
  if (names.empty()) names = net_names();
  return fmt::format("{}", fmt::join(names, " "));
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
  throw InputError(fmt::format("unknown net '{}': nearest are {}", name, nearest(name)));
}

}  // namespace convlab
